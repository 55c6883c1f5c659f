"""Drawn data sets with exact labels: people, rooms and scenes."""
