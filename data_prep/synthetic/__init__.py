"""Drawn datasets with exact labels: people, heads, rooms, scenes and things."""
