"""Distances of labels of few numbers by the direct formula, compiled; it imports numba: import it late.

There the plain sum is faster than a matrix product whose rounding has to be settled. The loops run over
the labels of one side, one number after the other, so that the processor compares several labels at a time and every
sum keeps its order.
"""

import math

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop

TILE = 1024  # labels whose sums stay in the first-level cache
_LEAST = float(np.finfo(np.float32).tiny)


def squared_by_sum(
    a: Float64,  # (A, D) float64, contiguous
    b: Float64,  # (B, D) float64
    *,
    root: bool,
) -> Float32:  # (A, B) float32
    """Compute squared Euclidean distances, or their roots.

    Raises FloatingPointError for a square above 0 that float32 cannot hold.
    """
    result = np.empty((len(a), len(b)), np.float32)
    if _sum_squares(np.ascontiguousarray(a), np.ascontiguousarray(b.T), root, result):
        raise FloatingPointError("underflow")
    return result


@compile_loop(fastmath=AS_WRITTEN)
def _sum_squares(a: Float64, columns: Float64, root: bool, out: Float32) -> int:
    """Fill ``out`` from (A, D) and (D, B); gives the number of squares that are lost."""
    sums, lost = np.empty(TILE), 0
    for start in range(0, columns.shape[1], TILE):
        stop = min(columns.shape[1], start + TILE)
        for i in range(a.shape[0]):
            # slices and single numbers, of which the compiler sees that no index is negative and none changes
            row = out[i, start:stop]
            for k in range(a.shape[1]):
                number, column = a[i, k], columns[k, start:stop]
                if k == 0:
                    for j in range(len(column)):
                        sums[j] = (number - column[j]) * (number - column[j])
                else:
                    for j in range(len(column)):
                        sums[j] += (number - column[j]) * (number - column[j])
            if root:
                for j in range(len(row)):
                    row[j] = math.sqrt(sums[j])
                continue
            small = 0
            for j in range(len(row)):
                row[j] = sums[j]
                if sums[j] < _LEAST:
                    small += 1
            if small > 0:
                for j in range(len(row)):
                    differs = False
                    for k in range(a.shape[1]):
                        if a[i, k] != columns[k, start + j]:
                            differs = True
                    if differs and sums[j] < _LEAST:
                        lost += 1
    return lost
