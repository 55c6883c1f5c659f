"""The estimated distances of a tile of poses, compiled: from matrix products to float32 and what is still open.

One pass over the products instead of fifteen, as written: the error bound counts every rounding. Not for: the products
(products.py), or what is open, which the direct formula settles.
"""

import numpy as np
from numpy.typing import NDArray

from cml.distances.compiled import AS_WRITTEN, compiled
from cml.distances.label_distance import Float32, Float64

Int32 = NDArray[np.int32]


@compiled(fastmath=AS_WRITTEN, inline=True)
def _ends(
    shared: float, total: float, x: float, y: float, error: float, centered: bool, min_shared: float, root: bool
) -> tuple[np.float32, np.float32]:
    """The least and the largest that the distance of a pair can be, rounded."""
    if centered:
        total -= (x * x + y * y) / shared
    mean = total / shared
    low, high = mean - error, mean + error
    if root:
        low, high = np.sqrt(max(low, 0.0)), np.sqrt(max(high, 0.0))
    if shared < min_shared:
        low, high = np.inf, np.inf
    return np.float32(low), np.float32(high)


@compiled(fastmath=AS_WRITTEN)
def settle_tile(
    products: tuple[Float64, Float64, Float64, Float64],
    errors: tuple[Float64, Float64],
    centered: bool,
    min_shared: float,
    root: bool,
    corner: tuple[int, int],
    out: Float32,
    places: Int32,
) -> int:
    """Write the distances of a tile, each the same to the last bit as the direct formula's or left open.

    Args:
        products: Of R and C poses, each (R, C): shared joints, sums of squares, and the sums of differences in x and
            in y, which are not looked at unless ``centered``.
        errors: Each row's (R,) and each column's (C,) part of the bound on the estimate's error.
        centered: Centre each pair on its shared joints.
        min_shared: Joints that a pair must share; otherwise it is infinitely far apart.
        root: Distances, not squared distances.
        corner: Row and column of ``out`` where the tile begins.
        out: (A, B) result.
        places: (R * C,) result: the tile's open pairs, row * C + column.

    Returns:
        How many are open.
    """
    shared, total, x, y = products
    error_rows, error_columns = errors
    count, columns = 0, shared.shape[1]
    for i in range(shared.shape[0]):
        open_pairs = 0
        for j in range(columns):
            error = error_rows[i] + error_columns[j]
            low, high = _ends(shared[i, j], total[i, j], x[i, j], y[i, j], error, centered, min_shared, root)
            out[corner[0] + i, corner[1] + j] = high
            open_pairs += low != high
        if open_pairs > 0:
            for j in range(columns):
                error = error_rows[i] + error_columns[j]
                low, high = _ends(shared[i, j], total[i, j], x[i, j], y[i, j], error, centered, min_shared, root)
                if low != high:
                    places[count] = i * columns + j
                    count += 1
    return count
