"""Ties in ranking: items with the same score are taken in random order.

In the order of a gallery that is sorted by label, a constant embedding could score like the best or the worst.
"""

import numpy as np

from cml.array_types import Bools, Floating, Int64


def rank_columns(
    scores: Floating, k: int, *, first: int = 0, seed: int = 0, next_too: bool = False
) -> tuple[Int64, Bools]:
    """The columns of the k smallest scores of each row, items with the same score in random order.

    Args:
        scores: (R, G) without NaN.
        k: Columns per row, 1 <= k <= G.
        first: Number of the query in the first row; the order of ties depends on it and ``seed`` alone.
        seed: Random seed of the order of ties.
        next_too: Whether to give the column behind these too, if there is one.

    Returns:
        Columns (R, k), and which rows (R,) have a tie among the first k or at their end.

    Raises:
        UserError: k is not in 1..G.
    """
    from cml.retrieval.top_k import top_columns

    columns = top_columns(scores, min(k + 1, scores.shape[1]))
    smallest = np.take_along_axis(scores, columns, axis=1)
    tied: Bools = (smallest[:, 1:] == smallest[:, :-1]).any(axis=1)
    for row in np.flatnonzero(tied).tolist():
        shuffled = np.random.default_rng((seed, first + row)).permutation(scores.shape[1])
        columns[row] = shuffled[top_columns(scores[row : row + 1, shuffled], columns.shape[1])[0]]
    return columns if next_too else columns[:, :k], tied
