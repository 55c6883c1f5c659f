"""Drawn scenes: things in places, and captions that say so."""
