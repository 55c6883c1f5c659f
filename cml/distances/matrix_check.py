"""The one check of a matrix of label distances: every door calls it, and losses call its rules on a batch.

A matrix is looked at in tiles, so that one of any size in a file is neither copied nor held in memory. What differs by
rounding alone is mended where a block is read: tiny negative numbers and what is left of a diagonal become 0, and the
two directions of a pair are averaged. Anything else that a matrix of distances cannot be is an error.

Not for: triples and neighbour lists, see ``sparse_distances.py`` and ``precomputed.py``.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.data.tensor_array import tensor_array
from cml.distances.labels import short
from cml.errors import ImplausibleData, UserError

# Two numbers are equal but for rounding if they, or their squares, differ by less than this share of the largest
# distance, or of its square: a distance near 0 is the root of a difference, whose rounding the root magnifies.
ROUNDING = 1e-5
# The diagonal of torch.cdist is the root of what is left of equal squares: of years, in float32, of 1 % of the largest.
DIAGONAL = 0.02
_NEGATIVE = 1e-4  # share of the largest distance below which a negative number is rounding
_TILE = 1024  # rows and columns that are looked at together
_MOST_CHECKED = 1 << 31  # numbers; of a larger matrix, as many in tiles drawn at random
_PROFILES = 100  # items whose rows are compared to tell similarities
_FEWEST_PROFILES = 12
_REVERSED = -0.3  # a rank correlation below it is none of distances; those of a metric have none below 0
_LARGEST = float(np.finfo(np.float32).max)
SIMILARITIES = "Is this a matrix of similarities? Turn them into distances first, such as 1 - similarity"
REVERSED = (
    "like similarities with 0 on their diagonal: items of like rows have large numbers between them. Turn them "
    "into distances first, such as the largest less each; a distance is the smaller the more alike two items are."
)


class GivenMatrix(NamedTuple):
    """A matrix as the user gave it, with the names of its rows."""

    array: NDArray[Any]  # (N, N)
    names: tuple[Any, ...] | None  # N names; None if it has only row numbers


@dataclass(frozen=True)
class Rounding:
    """What a check found that is mended where a block is read."""

    symmetric: bool  # whether the matrix equals its transpose, once it is mended
    negative: bool = False  # whether tiny negative numbers become 0
    diagonal: bool = False  # whether the diagonal becomes 0
    directions: bool = False  # whether the two directions of a pair are averaged

    def mend(self, read: Callable[[Int64, Int64], NDArray[Any]], rows: Int64, columns: Int64) -> Float32:
        """Read a block (A, B) of a matrix and mend it."""
        block: NDArray[Any] = np.array(read(rows, columns), np.float32)
        if self.directions:
            block = (block + np.asarray(read(columns, rows), np.float32).T) / 2
        if self.negative:
            scarcely = (block < 0) & (block > -_LARGEST)
            block[scarcely] = 0
        if self.diagonal:
            block[(rows[:, None] == columns) & np.isfinite(block)] = 0
        return block


def read_matrix(values: Any) -> GivenMatrix:  # noqa: ANN401 - checked here
    """Read a square matrix: an array, tensor, memory map or nested lists, or a frame whose rows have names."""
    if hasattr(values, "columns") and hasattr(values, "to_numpy"):  # a data frame
        index = getattr(values, "index", None)
        names = None if index is None or callable(index) else _names_of(index, values.columns)
        return GivenMatrix(_square(values.to_numpy(), values), names)
    if hasattr(values, "ids") and hasattr(values, "data") and not isinstance(values, np.ndarray):  # of scikit-bio
        return GivenMatrix(_square(np.asarray(values.data), values), tuple(values.ids))
    try:
        if isinstance(values, np.memmap):  # which another process can map again
            array: NDArray[Any] = values
        else:
            array = tensor_array(values) if hasattr(values, "detach") else _fill_mask(values)
    except (ValueError, TypeError):  # rows of different lengths
        array = np.empty(0, object)
    return GivenMatrix(_square(array, values), None)


def _fill_mask(values: Any) -> NDArray[Any]:  # noqa: ANN401 - an array or nested lists
    """An array; what a mask hides is no comparison, and not the number behind it."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        return np.asarray(np.ma.filled(values.astype(np.result_type(values.dtype, np.float32)), np.inf))
    return np.asarray(values)


def _square(array: NDArray[Any], values: Any) -> NDArray[Any]:  # noqa: ANN401 - as it was given
    """Refuse anything but a square matrix of numbers."""
    if array.ndim == 2 and array.dtype.kind in "Ob":  # of a frame with mixed columns; of classes that differ
        with contextlib.suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.ndim == 2 and array.shape[0] == array.shape[1] and array.size and array.dtype.kind in "fiu":
        return array
    if array.ndim == 1 and array.dtype.kind in "fiu" and (items := condensed_items(len(array))):
        raise UserError(
            f"The label distances are a vector of {len(array):,} numbers, as pdist gives for {items:,} items: make it "
            "a matrix by scipy.spatial.distance.squareform(D)."
        )
    got = f"{array.dtype} of shape {array.shape}" if array.size and not array.dtype.hasobject else short(values)
    raise UserError(
        "A label distance is a string such as 'euclidean', a LabelDistance, a function of two labels, or a square "
        f"matrix (N, N) of numbers. Got {got} instead."
    )


def condensed_items(length: int) -> int:
    """The number of items whose pairs a vector of some length holds, each once; 0 if there is none."""
    items = int((1 + (1 + 8 * length) ** 0.5) / 2)
    return items if length and items * (items - 1) // 2 == length else 0


def _names_of(index: Sequence[Any], columns: Sequence[Any]) -> tuple[Any, ...] | None:
    """The names of the rows of a frame, which should be those of its columns; None for the numbers 0 to N - 1."""
    names, across = list(index), list(columns)
    if names == across:
        return None if is_numbering(names) else _unique(names)
    if is_numbering(names) and is_numbering([*map(_as_number, across)]):
        return None
    if [*map(str, names)] == [*map(str, across)]:  # a file's header holds texts
        return _unique(names)
    if is_numbering(names) or is_numbering(across):
        return _unique(across if is_numbering(names) else names)
    place = next((place for place, pair in enumerate(zip(names, across, strict=False)) if pair[0] != pair[1]), 0)
    mend = "Reorder it: D.loc[names, names]" if set(names) == set(across) else "Name rows and columns alike"
    raise UserError(
        "Rows and columns of the matrix of label distances should have the same names in the same order. Row "
        f"{place} is {short(names[place])} and column {place} {short(across[place])}. {mend}."
    )


def _as_number(name: object) -> object:
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def _unique(names: Sequence[Any]) -> tuple[Any, ...]:
    """Names of which each stands for one row."""
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise UserError(f"The matrix of label distances has two rows of the name {short(name)}; names are unique.")
        seen.add(name)
    return tuple(names)


def is_numbering(names: Sequence[Any]) -> bool:
    """Whether names are the numbers 0 to N - 1 in order, which nobody gave."""
    return all(
        isinstance(name, int | np.integer) and not isinstance(name, bool) and name == place
        for place, name in enumerate(names)
    )


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array, or what it is a view of, is a memory map."""
    base: Any = array
    while base is not None:
        if isinstance(base, np.memmap):
            return True
        base = getattr(base, "base", None)
    return False


def check_matrix(
    matrix: NDArray[Any],  # (N, N)
    *,
    name: str,  # what it is called in messages
    names: Sequence[Any] | None = None,  # of its rows
    symmetric: bool | None = None,  # False if it need not equal its transpose
    error: type[UserError] = UserError,
) -> Rounding:
    """Check a square matrix of label distances.

    Returns what is rounding and to be mended.
    """

    def at(row: int, column: int) -> str:
        if names is None:
            return f"row {row}, column {column}"
        return f"row {row} ({short(names[row])}), column {column} ({short(names[column])})"

    name = name.replace("the matrix", "The matrix") if name.startswith("the matrix") else name  # it begins a sentence
    tiles = [*_tiles(len(matrix))]
    with np.errstate(over="ignore", invalid="ignore"):  # of float16, and of infinities
        bounds = [_bounds(matrix[part]) for part in tiles]
        least, largest = min(low for low, _ in bounds), max(high for _, high in bounds)
        diagonal = np.asarray(matrix.diagonal(), np.float64)
        above = np.flatnonzero(np.isfinite(diagonal) & (diagonal > DIAGONAL * largest))
        if len(above):
            row = int(above[0])
            raise error(
                f"{name} has {matrix[row, row]:g} at {at(row, row)}; an item's distance from itself should be 0. "
                f"{SIMILARITIES}; if only the diagonal is wrong, set it by numpy.fill_diagonal(D, 0)."
            )
        for rows, columns in tiles:
            _check_numbers(matrix[rows, columns], largest, (rows.start, columns.start), name, at, error)
        directions = _Directions(largest, _rounding(matrix))
        for rows, columns in tiles:
            if rows.start <= columns.start:
                directions.compare(matrix[rows, columns], matrix[columns, rows].T, (rows.start, columns.start))
    if directions.differ is not None and symmetric is not False:
        raise error(f"{name} {directions.describe(at)}")
    if has_reversed_order(matrix):
        warnings.warn(f"{name} looks {REVERSED}", ImplausibleData, stacklevel=_caller())
    return Rounding(
        symmetric=symmetric is not False or not directions.are_rounded,
        negative=-_LARGEST <= least < 0,
        diagonal=bool((diagonal[np.isfinite(diagonal)] != 0).any()),
        directions=directions.are_rounded and symmetric is not False,
    )


def _caller() -> int:
    """How many frames up a warning belongs: to the first line outside this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "cml":
        frame, level = frame.f_back, level + 1
    return level


def check_cross_matrix(values: Any) -> Float32:  # noqa: ANN401 - checked here
    """Check a matrix (Q, G) of label distances from queries to gallery items; rounding below 0 becomes 0."""
    matrix = np.asarray(tensor_array(values) if hasattr(values, "detach") else values)
    if matrix.ndim != 2 or not matrix.size or matrix.dtype.kind not in "fiu":
        got = f"{matrix.dtype} of shape {matrix.shape}"
        raise UserError(f"Label distances from Q queries to G gallery items are a matrix (Q, G). Got {got} instead.")
    with np.errstate(over="ignore", invalid="ignore"):
        _, largest = _bounds(matrix)
        name = "The matrix of label distances"
        _check_numbers(matrix, largest, (0, 0), name, lambda row, column: f"row {row}, column {column}", UserError)
        checked: Float32 = np.maximum(matrix, 0).astype(np.float32)
        return checked


def _tiles(items: int) -> Iterator[tuple[slice, slice]]:
    """The tiles of a matrix (N, N), each beside its mirror image; of a very large matrix a part, drawn at random."""
    starts = range(0, items, _TILE)
    pairs = [(row, column) for row in starts for column in starts if row <= column]
    most = _MOST_CHECKED // (2 * _TILE**2)
    if len(pairs) > most:
        pairs = [pairs[place] for place in np.random.default_rng(0).choice(len(pairs), most, replace=False)]
    for row, column in pairs:
        yield slice(row, row + _TILE), slice(column, column + _TILE)
        if row != column:
            yield slice(column, column + _TILE), slice(row, row + _TILE)


def _rounding(array: NDArray[Any]) -> float:
    """The share of the largest distance that is rounding: more in half precision."""
    return max(ROUNDING, 4 * float(np.finfo(array.dtype).eps)) if array.dtype.kind == "f" else ROUNDING


def _bounds(tile: NDArray[Any]) -> tuple[float, float]:
    """The least number of a tile, NaN left out, and the largest size of a finite one."""
    least, largest = float(tile.min()), float(tile.max())
    if np.isfinite(least) and np.isfinite(largest):
        return least, max(largest, -least)
    finite = np.abs(tile[np.isfinite(tile)])
    return float(np.nanmin(tile, initial=np.inf)), float(finite.max(initial=0))


def _check_numbers(
    tile: NDArray[Any],
    largest: float,
    start: tuple[int, int],  # the first row and column of the tile
    name: str,
    at: Callable[[int, int], str],
    error: type[UserError],
) -> None:
    """Refuse numbers that are no distances: NaN, negative ones beyond rounding, and such as float32 does not hold."""
    if tile.min() >= 0 and tile.max() <= _LARGEST:  # the usual tile; NaN is neither
        return
    least = -max(_NEGATIVE, _rounding(tile)) * largest
    is_rounding = (tile > least) & (tile != np.trunc(tile))  # -1 is a mark and no rounding
    wrong = ~(((tile >= 0) | is_rounding) & ((tile <= _LARGEST) | np.isposinf(tile)))
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        raise error(
            f"{name} has {tile[row, column]:g} at {at(row + start[0], column + start[1])}; it should be a number >= 0, "
            "or infinity for no comparison."
        )


class _Directions:
    """Compares the distance from i to j with that from j to i, tile by tile."""

    def __init__(self, largest: float, rounding: float = ROUNDING) -> None:
        self.largest, self.rounding = largest, rounding
        self.are_rounded = False  # whether any differ, by rounding or more
        self.differ: tuple[int, int, float, float] | None = None  # the first pair that differs beyond rounding
        self._filled = [False, False]  # whether there are distances above the diagonal, and below it
        self._rest = 0.0  # what an empty triangle holds
        self._is_half_known = False  # whether a pair is known in one direction and infinite in the other

    def compare(self, above: NDArray[Any], below: NDArray[Any], start: tuple[int, int]) -> None:
        """Compare a tile above the diagonal with its mirror image, both (R, C)."""
        if np.array_equal(above, below):
            is_filled = bool(((above > 0) & np.isfinite(above)).any())
            self._filled = [before or is_filled for before in self._filled]
            return
        self.are_rounded = True
        one, other = (np.triu(side, 1) if start[0] == start[1] else side for side in (above, below))
        one, other = one.astype(np.float64), other.astype(np.float64)
        for side, values in enumerate((one, other)):
            self._filled[side] = self._filled[side] or bool(((values > 0) & np.isfinite(values)).any())
        self._is_half_known = self._is_half_known or bool((np.isinf(one) != np.isinf(other)).any())
        is_equal = one == other  # infinities too
        is_equal |= np.abs(one - other) <= self.rounding * self.largest
        is_equal |= np.abs(one * np.abs(one) - other * np.abs(other)) <= self.rounding * self.largest**2
        if self.differ is None and not is_equal.all():
            row, column = np.argwhere(~is_equal)[0].tolist()
            pair = float(one[row, column]), float(other[row, column])
            self.differ = row + start[0], column + start[1], *pair
            self._rest = max(pair) if np.isinf(max(pair)) else 0.0

    def describe(self, at: Callable[[int, int], str], declare: str = "give symmetric=False") -> str:
        """Say how the directions differ, and how to mend it."""
        assert self.differ is not None
        row, column, there, back = self.differ
        declare += " if the distance from i to j is not that from j to i"
        if self._filled[0] != self._filled[1]:
            triangle = "above" if self._filled[0] else "below"
            mirrored = "numpy.minimum(D, D.T)" if np.isinf(self._rest) else "D + D.T"
            return f"has distances {triangle} the diagonal alone. Mirror them, {mirrored}, or {declare}."
        # a mean with infinity would lose what is known
        mend = "Take the smaller, numpy.minimum(D, D.T)" if self._is_half_known else "Average them, (D + D.T) / 2"
        return f"has {there:g} at {at(row, column)}, but {back:g} at {at(column, row)}. {mend}, or {declare}."


def find_odd_matrix(
    matrix: NDArray[Any],  # (N, N) without NaN or negative numbers
) -> str:
    """Say what is odd about the label distances of a batch, of which nobody knows whether they have a direction."""
    square = np.array(matrix, np.float64)
    np.fill_diagonal(square, 0)
    upper = np.triu_indices(len(square), 1)
    known = sorted(np.isfinite(side[upper]).sum() for side in (square, square.T))
    if known != [0, len(upper[0])]:  # but for a triangle, a pair known in one direction says nothing of the other
        square[np.isinf(square) | np.isinf(square.T)] = np.inf
    finite = square[np.isfinite(square)]
    directions = _Directions(float(finite.max(initial=0)))
    with np.errstate(invalid="ignore"):
        directions.compare(square, square.T, (0, 0))
    if directions.differ is not None:
        return directions.describe(
            lambda row, column: f"row {row}, column {column}", declare="fit the loss to it first"
        )
    return f"look {REVERSED}" if has_reversed_order(square) else ""


def has_reversed_order(
    matrix: NDArray[Any],  # (N, N) with 0 on its diagonal
) -> bool:
    """Whether a matrix looks like similarities whose diagonal was set to 0.

    Items that are near each other have like distances to all others. Where items of like rows are far apart instead,
    the numbers are larger the nearer two items are.
    """
    from scipy import stats

    items = np.arange(len(matrix))
    if len(items) > _PROFILES:
        items = np.sort(np.random.default_rng(0).choice(items, _PROFILES, replace=False))
    block = np.asarray(matrix[items[:, None], items], np.float64)
    if len(items) < _FEWEST_PROFILES or not np.isfinite(block).all():
        return False
    ranks = stats.rankdata(block).reshape(block.shape)  # of any scale, so that no outlier decides
    gaps = np.abs(ranks[:, None] - ranks)  # (M, M, M) |d(i, k) - d(j, k)|
    own = np.arange(len(items))
    gaps[own, :, own] = gaps[:, own, own] = 0  # neither of the two themselves
    profiles = gaps.sum(2)
    upper = np.triu_indices(len(items), 1)
    if np.ptp(block[upper]) == 0 or np.ptp(profiles[upper]) == 0:
        return False
    return bool(stats.spearmanr(block[upper], profiles[upper]).statistic < _REVERSED)
