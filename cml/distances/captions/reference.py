"""The caption distances as a plain loop: POT's solver for each pair of captions.

The reference for the kernels in kernel.py, 50 to 130 times slower.
"""

import numpy as np
from numpy.typing import NDArray

from cml.distances.captions.bags import Bags, Float


def plain_block(a: Bags, b: Bags, vectors: Float, wanted: NDArray[np.bool_], relaxed: bool, out: Float) -> None:
    """Distances, or with ``relaxed`` their lower bounds, of the images of ``a`` and ``b`` into ``out`` (A, B).

    Only the pairs ``wanted`` (A, B) are computed. ``vectors`` (V, D) are those of the words. ``relaxed``: each word
    moves to its nearest word of the other caption.
    """
    for i, j in zip(*np.nonzero(wanted), strict=True):
        # always from the first image by content to the second, so that the order of the two changes no bit
        one, first, two, second = (a, i, b, j) if a.ranks[i] <= b.ranks[j] else (b, j, a, i)
        rows = range(one.captions[first], one.captions[first + 1])
        columns = range(two.captions[second], two.captions[second + 1])
        moved = [
            [_caption_pair(*one.caption(x, first), *two.caption(y, second), vectors, relaxed) for y in columns]
            for x in rows
        ]
        out[i, j] = np.min(moved, axis=1).sum() + np.min(moved, axis=0).sum()


def _caption_pair(
    words: NDArray[np.int64],
    weights: Float,
    others: NDArray[np.int64],
    other_weights: Float,
    vectors: Float,
    relaxed: bool,
) -> float:
    if np.array_equal(words, others) and np.array_equal(weights, other_weights):
        return 0.0
    gaps = vectors[words][:, None] - vectors[others][None]
    cost = np.sqrt((gaps * gaps).sum(axis=2))
    if relaxed:
        return float(max((weights * cost.min(axis=1)).sum(), (other_weights * cost.min(axis=0)).sum()))
    import ot

    return max(0.0, float(ot.emd2(weights, other_weights, cost, check_marginals=False, center_dual=False)))
