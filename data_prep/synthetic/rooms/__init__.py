"""Drawn rooms: traced views with known walls, floor and ceiling."""
