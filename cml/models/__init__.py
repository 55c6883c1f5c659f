"""Backbones and the embedding model."""
