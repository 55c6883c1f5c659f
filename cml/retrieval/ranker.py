"""What a ranker is: the scores by which the gallery is ranked, block by block of the queries."""

from collections.abc import Callable

from cml.array_types import Floating

Ranker = Callable[[slice], Floating]
"""Scores (R, G) of the queries in a slice against the whole gallery; a lower score is retrieved earlier.

It is called from several threads at a time. NaN is an error."""
