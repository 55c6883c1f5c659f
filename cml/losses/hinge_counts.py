"""The compiled loop of ``dense_triplet.py``: sums of hinges over ordered pairs, a sort and B cheap steps per row.

Going up the order, the columns seen so far come before the present one, and their places in ascending distance are
counted in two levels: by bucket of places and within the bucket. A count below any place is then two look-ups.
"""

from typing import Any

import numba
import numpy as np

from cml.array_types import Floating, Int32, Int64

BITS = 6  # a bucket is 64 places, near the root of the usual numbers of columns
MASK = (1 << BITS) - 1


@numba.njit(nogil=True, cache=True)
def sum_hinges(
    ascending: Floating,  # (R, B) distances of each row in ascending order; infinite ones, left out, come last
    by_distance: Int64,  # (R, B) the columns that they belong to
    in_order: Floating,  # (R, B) order values in ascending order, infinite where left out
    ranks: Int64,  # (R, B) the places in ``ascending`` that they belong to
    margin: np.floating[Any],  # Margin between distances, of the type of ``ascending``
    values: Floating,  # (R,) filled with the sum of the hinges
    pairs: Int64,  # (R,) filled with the number of pairs i before j, active or not
    slopes: Floating,  # (R, B) of zeros, filled with the active pairs with the column as i, less those with it as j
) -> None:
    """Fill ``values``, ``pairs`` and ``slopes`` for R rows of B columns."""
    columns = ascending.shape[1]
    reach = np.empty(columns, np.int64)  # how many distances are below D_k + margin
    below = np.empty(columns, np.int64)  # how many distances D + margin are at most D_k
    buckets = (columns >> BITS) + 1
    coarse = np.empty(buckets, np.int32)  # places seen in earlier buckets
    fine = np.empty(buckets << BITS, np.int32)  # places seen in this bucket before this place
    for row in range(len(ascending)):
        distance, order, rank = ascending[row], in_order[row], ranks[row]
        used = 0
        while used < columns and order[used] < np.inf:
            used += 1
        end = 0
        for k in range(columns):
            while end < columns and distance[end] < distance[k] + margin:
                end += 1
            reach[k] = end
        start = 0
        for k in range(columns):
            while start < columns and reach[start] <= k:
                start += 1
            below[k] = start

        coarse[:] = 0
        fine[:] = 0
        value, number, first = 0.0, 0, 0
        while first < used:  # equal order entries together: [first, last)
            last = first + 1
            while last < used and order[last] == order[first]:
                last += 1
            for place in range(first, last):
                k = rank[place]
                active = first - _seen_below(coarse, fine, below[k])
                slopes[row, by_distance[row, k]] -= active
                value -= active * np.float64(distance[k])
            for place in range(first, last):
                _see(coarse, fine, rank[place])
            for place in range(first, last):
                k = rank[place]
                active = reach[k] - _seen_below(coarse, fine, reach[k])
                slopes[row, by_distance[row, k]] += active
                value += active * (np.float64(distance[k]) + margin)
            number += first * (last - first)
            first = last
        values[row] = value
        pairs[row] = number


@numba.njit(nogil=True, cache=True)
def _see(coarse: Int32, fine: Int32, rank: int) -> None:
    """Count ``rank`` as seen. Both loops run over whole lines of int32, so that they become vector instructions."""
    bucket = rank >> BITS
    for later in range(np.int32(len(coarse))):
        coarse[later] += np.int32(np.int32(later) > np.int32(bucket))
    line = fine[bucket << BITS : (bucket + 1) << BITS]
    for later in range(1 << BITS):
        line[later] += np.int32(np.int32(later) > np.int32(rank & MASK))


@numba.njit(nogil=True, cache=True)
def _seen_below(coarse: Int32, fine: Int32, rank: int) -> int:
    seen: int = coarse[rank >> BITS] + fine[rank]
    return seen
