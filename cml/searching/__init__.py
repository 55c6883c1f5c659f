"""Embeddings in folders and indexes: written, searched, shown."""
