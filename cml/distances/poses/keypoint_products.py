"""Distances of poses by matrix products: estimates with a bound on their error, which settles almost all digits."""

import numpy as np

from cml.array_types import Float32, Float64, Int32
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.exact_products import TILE_COLUMNS, TILE_ROWS, UNIT_ROUNDOFF, Rows, noise_floor
from cml.distances.labels import Labels


class PoseProducts:
    """Products of the poses of two sides, tile by tile in the same memory, which stays in the cache.

    With v for visible and p for coordinates, a pair needs sum v_a v_b, its shared joints; sum v_a v_b |p_a - p_b|^2;
    and, to be centred on its shared joints, the sums of v_a v_b (p_a - p_b) for x and y.
    """

    def __init__(
        self,
        a: Labels,  # a poses as ``Keypoints.encode`` packs them
        others: Labels,
        *,
        centered: bool,
        min_shared: int,
        root: bool,
    ) -> None:
        self._centered, self._min_shared, self._root = centered, float(min_shared), root
        self._middle = others.arrays["xy"].sum(axis=(0, 1)) / max(1, np.count_nonzero(others.arrays["visible"]))
        x, y, self._seen, squares, self._error = _parts(a, self._middle)
        self._terms = np.hstack([squares, self._seen, x, y])
        self._sums = [np.hstack([p, self._seen]) for p in (x, y)] if centered else []
        size = min(len(a), TILE_ROWS) * min(len(others), TILE_COLUMNS)
        self._room, self._places = np.empty((4, size)), np.empty(size, np.int32)

    def estimate(
        self,
        b: Labels,
        out: Float32,  # (A, B) distances, of which the columns from ``first`` on are written in place
        first: int,
    ) -> tuple[Rows, Rows]:
        """Write the distances to some of the other poses."""
        x, y, seen, squares, error = _parts(b, self._middle)
        terms = np.hstack([seen, squares, -2 * x, -2 * y])
        sums = [np.hstack([seen, -p]) for p in (x, y)] if self._centered else []
        places, count_b = [], len(b)
        for start in range(0, len(self._seen), TILE_ROWS):
            rows = slice(start, min(start + TILE_ROWS, len(self._seen)))
            size = rows.stop - start, count_b
            shared, total, *centers = (part[: size[0] * size[1]].reshape(size) for part in self._room)
            np.matmul(self._seen[rows], seen.T, out=shared)  # whole numbers
            np.matmul(self._terms[rows], terms.T, out=total)
            for left, right, product in zip(self._sums, sums, centers, strict=False):
                np.matmul(left[rows], right.T, out=product)
            count = settle_tile(
                (shared, total, centers[0], centers[1]),
                (self._error[rows], error),
                self._centered,
                self._min_shared,
                self._root,
                (start, first),
                out,
                self._places,
            )
            places.append(start * count_b + self._places[:count].astype(np.intp))
        rows_open, columns_open = np.divmod(np.concatenate(places), count_b)
        return rows_open, columns_open


def _parts(labels: Labels, middle: Float64) -> tuple[Float64, Float64, Float64, Float64, Float64]:
    """Compute x, y, visibility and squared length of joints (N, J), and each pose's part of the error bound (N,)."""
    visible = labels.arrays["visible"]
    xy = np.where(visible[:, :, None], labels.arrays["xy"] - middle, 0.0)
    x, y = np.ascontiguousarray(xy[:, :, 0]), np.ascontiguousarray(xy[:, :, 1])
    squares = x * x + y * y
    # A dot product of n terms errs by at most n roundings of the sum of their sizes, here at most twice that of the two
    # norms; 6 J + 16 for n covers products, division and direct formula of the plain form, four times as much those of
    # the centred form.
    roundings = 16 * (6 * visible.shape[1] + 16) * UNIT_ROUNDOFF
    error = roundings * squares.sum(axis=1) + 2 * noise_floor(labels.arrays["noise"], 0.0)
    return x, y, visible.astype(np.float64), squares, error


@compile_loop(fastmath=AS_WRITTEN, inline=True)
def _ends(
    shared: float, total: float, x: float, y: float, error: float, centered: bool, min_shared: float, root: bool
) -> tuple[np.float32, np.float32]:
    """Bound the distance of a pair from below and above, rounded."""
    if centered:
        total -= (x * x + y * y) / shared
    mean = total / shared
    low, high = mean - error, mean + error
    if root:
        low, high = np.sqrt(max(low, 0.0)), np.sqrt(max(high, 0.0))
    if shared < min_shared:
        low, high = np.inf, np.inf
    return np.float32(low), np.float32(high)


@compile_loop(fastmath=AS_WRITTEN)
def settle_tile(
    # four arrays (R, C): shared joints, sums of squares, and of differences in x and y
    products: tuple[Float64, Float64, Float64, Float64],
    errors: tuple[Float64, Float64],  # each row's (R,) and each column's (C,) part of the error bound
    centered: bool,
    min_shared: float,
    root: bool,
    corner: tuple[int, int],  # row and column of the tile in ``out``
    out: Float32,  # (A, B) distances, written in place
    places: Int32,  # (R * C,) the open pairs as row * C + column, written in place
) -> int:
    """Write a tile's distances, each to the last bit the direct formula's or left open."""
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
