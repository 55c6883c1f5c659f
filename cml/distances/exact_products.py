"""Squared distances at the speed of matrix products, with the digits of the direct formula.

A product alone comes with rounding noise: equal labels come out as 1e-13, and digits depend on the block. Here it is an
estimate with a proven error bound. Where the float32 result is the same at both ends of the bound it is settled; the
few other pairs (about one in a million, and all equal labels) are computed again by the direct formula.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Float64
from cml.distances.blas_threads import one_blas_thread

Rows = NDArray[np.intp]

UNIT_ROUNDOFF = 2.0**-53
TILE_ROWS, TILE_COLUMNS = 256, 1024  # tiles of float64 that stay in a core's second-level cache
_DIRECT_BYTES = 16 << 20  # what the direct formula may gather at a time


def compute_again(
    rows: Rows,  # (P,) rows of the pairs
    columns: Rows,  # (P,) columns of the pairs
    direct: Callable[[Rows, Rows], Float64],  # computes squared distances (Q,) of rows (Q,) and columns (Q,)
    *,
    pair_bytes: int,  # memory that ``direct`` takes for a pair
    root: bool,
    out: Float32,  # (A, B) distances, written in place
) -> None:
    """Write the distances of open pairs by the direct formula."""
    pairs = max(1, _DIRECT_BYTES // pair_bytes)
    for start in range(0, len(rows), pairs):
        row, column = rows[start : start + pairs], columns[start : start + pairs]
        exact = direct(row, column)
        out[row, column] = np.sqrt(exact) if root else exact


def noise_floor(
    a: Any,  # noqa: ANN401 - arrays or numbers
    b: Any,  # noqa: ANN401 - arrays or numbers
) -> Any:  # noqa: ANN401 - arrays or numbers
    """Bound the mean squared difference of equal labels by their rounding errors.

    Returns mean squared differences up to this are 0.
    """
    return np.square(4 * (a + b))


def running_sum(terms: Float64) -> Float64:  # terms (P, D) -> (P,)
    """Sum up rows from left to right, in one order however many rows there are."""
    return np.add.accumulate(terms, axis=1)[:, -1]


def squared_euclidean(
    a: Float64,  # (A, D) float64
    b: Float64,  # (B, D) float64
    *,
    root: bool,
    zero_below: float = 0.0,  # squared distances up to this are noise and become 0
) -> Float32:  # (A, B) float32
    """Compute squared Euclidean distances, or their roots, with the digits of the direct formula."""
    dimension = a.shape[1]
    result = np.empty((len(a), len(b)), np.float32)
    center = b.mean(axis=0)  # a shift changes no distance, and short rows round less
    near_a, near_b = a - center, b - center
    norms_a = np.square(near_a).sum(axis=1)[:, None]  # (A, 1)
    norms_b = np.square(near_b).sum(axis=1)  # (B,)
    bound = 4 * (dimension + 8) * UNIT_ROUNDOFF  # twice the textbook bound of product and direct formula together
    error_a = bound * norms_a + zero_below

    def _settle(i: int, j: int, out: Float32) -> None:
        norms = norms_b[j : j + TILE_COLUMNS]
        estimate = -2 * near_a[i : i + TILE_ROWS] @ near_b[j : j + TILE_COLUMNS].T  # (R, C)
        estimate += norms_a[i : i + TILE_ROWS]
        estimate += norms
        error = error_a[i : i + TILE_ROWS] + bound * norms
        low = np.subtract(estimate, error)
        high = np.add(estimate, error, out=estimate)
        if root:
            np.maximum(low, 0, out=low)
            np.sqrt(low, out=low)
            np.sqrt(high, out=high)
        out[:] = high
        rows, columns = np.divmod(np.flatnonzero(low.astype(np.float32) != out), out.shape[1])

        def direct(rows: Rows, columns: Rows) -> Float64:
            exact = running_sum(np.square(a[i + rows] - b[j + columns]))
            return np.where(exact <= zero_below, 0.0, exact)

        compute_again(rows, columns, direct, pair_bytes=32 * dimension, root=root, out=out)

    with one_blas_thread():
        for i in range(0, len(a), TILE_ROWS):
            for j in range(0, len(b), TILE_COLUMNS):
                _settle(i, j, result[i : i + TILE_ROWS, j : j + TILE_COLUMNS])
    return result


def direction_noise(dimension: int) -> float:
    """The squared distance that rounding may leave between equal directions: each number has up to (D / 2 + 3)."""
    return float(4 * ((dimension + 6) * UNIT_ROUNDOFF) ** 2)
