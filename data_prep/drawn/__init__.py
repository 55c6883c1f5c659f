"""Drawn data sets with exact labels: people, heads, rooms and scenes."""
