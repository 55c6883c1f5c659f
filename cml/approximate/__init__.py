"""Neighbour lists and an embedding from few calls of a slow label distance."""
