"""Ties in ranking: items with the same score are taken in random order.

In the order of a gallery that is sorted by label, a constant embedding could score like the best or the worst.
"""

import numpy as np

from cml.array_types import Bools, Floating, Int64


def rank_columns(
    scores: Floating,  # (R, G) without NaN
    k: int,
    *,
    first: int = 0,
    seed: int = 0,
    next_too: bool = False,
) -> tuple[Int64, Bools]:  # columns (R, k), and which rows (R,) have a tie among the first k or at their end
    """The columns of the k smallest scores of each row, items with the same score in random order."""
    from cml.retrieval.top_k import top_columns

    columns = top_columns(scores, min(k + 1, scores.shape[1]))
    smallest = np.take_along_axis(scores, columns, axis=1)
    tied: Bools = (smallest[:, 1:] == smallest[:, :-1]).any(axis=1)
    for row in np.flatnonzero(tied).tolist():
        shuffled = np.random.default_rng((seed, first + row)).permutation(scores.shape[1])
        columns[row] = shuffled[top_columns(scores[row : row + 1, shuffled], columns.shape[1])[0]]
    return columns if next_too else columns[:, :k], tied


def mask_own_column(
    block: Floating,  # (R, G) distances of the queries in ``rows`` to all items
    rows: slice,
) -> None:
    """Set the distance of each query to itself to infinity, in place."""
    block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf
