"""Drawn heads with their exact rotations."""
