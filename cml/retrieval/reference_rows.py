"""The rows "random" and "oracle" of a table: a random ranking, and the ranking by the label distance itself."""

import numpy as np

from cml.array_types import Float64

RANDOM = "random"
"""The name of the row."""


class RandomRanker:
    """Ranks at random; a metric that knows what random rankings have in expectation gives that."""

    def __init__(self, queries: int, gallery: int, seed: int) -> None:
        self._queries, self._gallery, self._seed = queries, gallery, seed

    def __call__(self, rows: slice) -> Float64:
        """Scores (R, G) of the queries in a slice."""
        draws = -(-self._gallery // 4)  # a step of Philox gives four numbers
        start, stop, _ = rows.indices(self._queries)
        stream = np.random.Philox(key=self._seed).advance(start * draws)
        return np.random.Generator(stream).random((stop - start, 4 * draws))[:, : self._gallery]


def random_ranker(queries: int, gallery: int, seed: int = 0) -> RandomRanker:
    """Rank at random: the order of each query depends on ``seed`` and its number alone.

    Metrics of the whole ranking are not measured on that order: their row has the mean over all orders.

    Args:
        queries: Q.
        gallery: G.
        seed: Random seed.

    Returns:
        The ranker.

    Example:
        >>> random_ranker(2, 5)(slice(0, 2)).shape
        (2, 5)
    """
    return RandomRanker(queries, gallery, seed)


ORACLE = "oracle"
"""The name of the row."""
