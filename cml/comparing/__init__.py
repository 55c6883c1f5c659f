"""Comparisons: several methods on one dataset, over seeds, dimensions and settings, and the benchmark of all losses."""
