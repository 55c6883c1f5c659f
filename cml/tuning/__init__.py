"""Tuning: heads on frozen features, or whole networks, that are chosen on held-out items."""
