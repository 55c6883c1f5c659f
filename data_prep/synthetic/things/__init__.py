"""Drawn things: their kinds, the pen that draws them, and single things as classes."""
