"""Drawn people: figures with known joints before photographs."""
