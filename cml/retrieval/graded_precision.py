"""H-AP of whole rankings, compiled: average precision with graded gains, as a mean over the orders of tied items.

The module imports numba: import it only where it is used.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

NEIGHBORS = 10  # as of the loss h-ap


def graded_gains(label_distances: NDArray[np.floating[Any]], nearest: NDArray[np.floating[Any]]) -> Float64:
    """exp(-d / d_10), d_10 the label distance of the query's 10th nearest item, or of its farthest of fewer.

    The gains do not depend on the unit of the label distance.

    Args:
        label_distances: (R, G), infinite where two labels cannot be compared.
        nearest: (R, >= min(10, G)) the smallest of each row, rising.

    Returns:
        (R, G) float64 in 0..1, 0 where nothing can be compared.
    """
    near = nearest[:, :NEIGHBORS].astype(np.float64)
    scale = np.where(np.isfinite(near), near, 0).max(axis=1, keepdims=True)
    # where ten items are at distance 0 the others gain nothing
    ratio: Float64 = label_distances * (-1 / np.maximum(scale, np.finfo(np.float64).tiny))
    return np.exp(ratio, out=ratio)


@njit(nogil=True, cache=True, error_model="numpy")
def sum_of_precisions(ranked: Any, ordered: Any, size: int, highest: int, gain_of: Any, work: Any) -> float:  # noqa: ANN401 - arrays of numba
    """Sum over items k of h_k / r_k, where r_k is the rank and h_k = g_k + sum over items j before of min(g_j, g_k).

    Of two label ranks that differ first at one bit the one with the 0 has the greater gain: for each bit one
    branchless pass over the ranking adds for an item with a 1 its gain for each 0 before it, for one with a 0 the
    gains of the 1s before it. O(G log G).

    Args:
        ranked: (G,) dense label ranks in the order retrieved, rising among items of one score.
        ordered: (G,) the scores in that order.
        size: How many of them count.
        highest: The largest label rank.
        gain_of: Gain of each label rank, falling.
        work: (G, 4) and (G + 2,) float64, overwritten.
    """
    items, sums = work
    total = 0.0
    start = 0
    while start < size:
        stop = start + 1
        while stop < size and ordered[stop] == ordered[start]:
            stop += 1
        tied = stop - start
        weight, slope = 1 / stop, 0.0  # the means over places of 1 / rank, and of (share of the others before) / rank
        if tied > 1:
            weight = 0.0
            for rank in range(start + 1, stop + 1):
                weight += 1 / rank / tied
                slope += (rank - start - 1) / rank / tied / (tied - 1)
        later = 0.0
        for i in range(stop - 1, start - 1, -1):
            gain = gain_of[ranked[i]]
            before = (i - start) * gain
            # the passes below take those tied with it as they stand here; on average a share of them is before it
            total += weight * (gain - before) + slope * (before + later)
            later += gain
            items[i, 0], items[i, 1] = 1.0, gain  # what an item with a 0, or with a 1, is to those after it
            items[i, 2], items[i, 3] = weight, weight * gain
        start = stop
    bit = 0
    while highest >> bit > 0:
        sums[: (highest >> bit) + 2] = 0
        for i in range(size):
            group = ranked[i] >> bit
            one = group & 1
            total += items[i, 2 + one] * sums[group ^ 1]
            sums[group] += items[i, one]
        bit += 1
    if highest + 1 == size:  # no two labels are equally far
        return total
    sums[: highest + 1] = 0
    for i in range(size):
        total += items[i, 3] * sums[ranked[i]]
        sums[ranked[i]] += 1
    return total
