"""Graded search: queries on one side, documents on the other, and a grade for some pairs of both."""
