"""The row "random" of a table: one random ranking of the gallery for each query, as an untrained embedding gives it."""

import numpy as np

from cml.array_types import Float64
from cml.retrieval.ranker import Ranker

RANDOM = "random"
"""The name of the row."""


def random_ranker(queries: int, gallery: int, seed: int = 0) -> Ranker:
    """Rank at random: the order of each query depends on ``seed`` and its number alone.

    Args:
        queries: Q.
        gallery: G.
        seed: Random seed.

    Returns:
        The ranker.
    """
    draws = -(-gallery // 4)  # a step of Philox gives four numbers

    def scores(rows: slice) -> Float64:
        start, stop, _ = rows.indices(queries)
        stream = np.random.Philox(key=seed).advance(start * draws)
        return np.random.Generator(stream).random((stop - start, 4 * draws))[:, :gallery]

    return scores
