"""Label distances of some pairs of items, as triples (i, j, distance): sorted once, then read row by row.

Memory is O(triples), whatever the number of items. Pairs that no triple names cannot be compared. Not for: distances of
all pairs, which are a matrix, and neighbour lists, see ``precomputed.py``.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int32, Int64, Integer
from cml.data.tensor_array import tensor_array
from cml.distances.labels import short
from cml.distances.nearest import KnownPairs, Neighbors
from cml.errors import DataError, UserError
from cml.storage.atomic import atomic_file
from cml.storage.number_columns import read_npz_columns, read_number_columns

MOST_ITEMS = np.iinfo(np.int32).max
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDING = 1e-6  # share by which two triples of one pair may differ: float32 rounds by less
_NAMES = ("i", "j", "distance")


class _Entries(NamedTuple):
    """Stored distances of R rows."""

    owners: Int64  # (E,) which of the R rows, rising
    columns: Int32  # (E,) item numbers
    distances: Float32  # (E,) float32


@dataclass(frozen=True, eq=False)
class SparseDistances:
    """Label distances of some pairs of N items, in compressed rows.

    It is made by ``from_triples``, ``from_matrix`` or ``read``. As a label distance, a label is an item's number.

    Attributes:
        items: N; items are numbered 0..N-1.
        symmetric: Whether a triple (i, j, distance) also gives the distance from j to i.
        rows: (R,) int32 the items that have a stored distance to another one, rising.
        starts: (R + 1,) int64 where the entries of each of these begin.
        columns: (E,) int32 the other items, rising in each row. Of symmetric distances a pair is there twice.
        distances: (E,) float32, finite.
        name: Where they come from, for messages.

    Example:
        >>> from cml.distances import as_label_distance
        >>> judged = SparseDistances.from_triples([0, 2], [1, 1], [0.5, 3.0], items=4)
        >>> distance = as_label_distance(judged, unit="points")
        >>> labels = distance.encode(range(4))
        >>> distance.pairwise(labels[:2], labels).tolist()
        [[0.0, 0.5, inf, inf], [0.5, 0.0, 3.0, inf]]
    """

    items: int
    symmetric: bool
    rows: Int32
    starts: Int64
    columns: Int32
    distances: Float32
    name: str = "the triples of label distances"

    @classmethod
    def from_triples(
        cls,
        i: Any,  # noqa: ANN401 - checked here, as are the others
        j: Any,  # noqa: ANN401
        distance: Any,  # noqa: ANN401
        *,
        items: int | None = None,
        symmetric: bool = True,
        name: str = "the triples of label distances",
    ) -> Self:
        """Check triples and sort them.

        Args:
            i: (T,) whole numbers, items from 0: an array, a tensor, a list or a column of a frame.
            j: (T,) whole numbers, the other items.
            distance: (T,) numbers of at least 0. Infinity leaves a pair out. An item's distance from itself is 0,
                whether a triple says so or not.
            items: N. ``None``: the largest item number and 1.
            symmetric: Whether a triple also gives the distance from j to i.
            name: Where the triples come from, for messages.

        Returns:
            The distances.

        Raises:
            UserError: The arrays are of different lengths or other types, an item number is negative or not below
                ``items``, a distance is NaN, negative or above the largest float32, an item is at a distance from
                itself, or two triples give different distances for one pair. Names the triple, from 0.
        """
        first, second, values = (
            _as_vector(part, key, name) for part, key in zip((i, j, distance), _NAMES, strict=True)
        )
        if not len(first) == len(second) == len(values):
            got = f"{len(first)}, {len(second)} and {len(values)}"
            raise UserError(f"'i', 'j' and 'distance' of {name} should have one length. Got {got} instead.")
        if not len(first):
            raise UserError(f"There are no triples in {name}.")
        count = _check_items(items, first, second, name)
        _check_values(first, second, values, name)
        triples = np.flatnonzero(first != second)
        owners, others = first[triples].astype(np.int64), second[triples].astype(np.int64)
        values = values[triples].astype(np.float32)
        if symmetric:
            owners, others = np.concatenate([owners, others]), np.concatenate([others, owners])
            values, triples = np.tile(values, 2), np.tile(triples, 2)
        keys = owners * count + others
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], values[order]
        begins = np.flatnonzero(np.diff(keys, prepend=-1))  # the first of several triples of one pair
        if len(begins) < len(keys):
            least, most = np.minimum.reduceat(values, begins), np.maximum.reduceat(values, begins)
            with np.errstate(invalid="ignore"):  # infinite of both
                differ = (most != least) & (np.isinf(most) | (most - least > _ROUNDING * most))
            if differ.any():
                pair = int(np.argmax(differ))
                stop = begins[pair + 1] if pair + 1 < len(begins) else len(keys)
                run = slice(begins[pair], stop)
                _refuse_contradiction(triples[order[run]], values[run], first, second, name)
            keys, values = keys[begins], least
        known = np.isfinite(values)
        keys, values = keys[known], values[known]
        owners, columns = (part.astype(np.int32) for part in np.divmod(keys, count))
        starts = np.flatnonzero(np.diff(owners, prepend=-1))
        return cls(count, symmetric, owners[starts], np.append(starts, len(keys)), columns, values, name)

    @classmethod
    def from_matrix(cls, matrix: Any, *, symmetric: bool = True) -> Self:  # noqa: ANN401 - checked here
        """Take the stored entries of a sparse matrix of SciPy, zeros that are stored too.

        Args:
            matrix: (N, N) of any format. What is not stored cannot be compared.
            symmetric: Whether the entry (i, j) also gives the distance from j to i; one triangle is enough then.

        Returns:
            The distances.

        Raises:
            UserError: The matrix is not square, or as ``from_triples`` raises it.
        """
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise UserError(f"A sparse matrix of label distances should be square (N, N). Got {matrix.shape} instead.")
        entries = matrix.tocoo()
        return cls.from_triples(
            entries.row,
            entries.col,
            entries.data,
            items=int(matrix.shape[0]),
            symmetric=symmetric,
            name="the sparse matrix of label distances",
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read triples from a ``.npz``, CSV or Parquet file.

        Args:
            path: A file with the arrays ``i``, ``j`` and ``distance`` (T,), as ``numpy.savez`` writes it, and where
                they are not the defaults of ``from_triples``, single numbers ``items`` and ``symmetric`` (0 or 1). Or a
                table with the columns ``i``, ``j`` and ``distance``, whose name ends in ``.csv`` or ``.parquet``.

        Returns:
            The distances.

        Raises:
            DataError: The file is missing, damaged or holds something else.
        """
        try:
            if path.suffix.lower() == ".npz":
                arrays = read_npz_columns(path, _NAMES, optional=("items", "symmetric"))
            else:
                arrays = read_number_columns(path, _NAMES)
        except FileNotFoundError:
            raise DataError(f"{path} is missing: triples of label distances are a .npz, CSV or Parquet file.") from None
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read as triples of label distances: {error}.") from None
        options = {key: arrays.pop(key).item() for key in ("items", "symmetric") if key in arrays}
        symmetric = options.get("symmetric", 1)
        if symmetric not in (0, 1):  # NaN is not
            raise DataError(f"'symmetric' in {path} should be 0 or 1. Got {symmetric} instead.")
        try:
            return cls.from_triples(**arrays, items=options.get("items"), symmetric=bool(symmetric), name=str(path))
        except UserError as error:
            raise DataError(str(error)) from None

    def save(self, path: Path | str) -> None:
        """Write the triples to a ``.npz`` file, which ``read`` and ``precomputed(path=FILE)`` read.

        Args:
            path: The file.
        """
        owners = np.repeat(self.rows, np.diff(self.starts))
        once = owners < self.columns if self.symmetric else np.ones(len(owners), np.bool_)
        triples = {"i": owners[once], "j": self.columns[once], "distance": self.distances[once]}
        with atomic_file(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **triples, items=np.int64(self.items), symmetric=np.int8(self.symmetric))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        pairs = len(self.distances) // (2 if self.symmetric else 1)
        return f"SparseDistances({pairs:,} pairs of {self.items:,} items)"

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self.items, self.symmetric, self.rows, self.starts, self.columns, self.distances, self.name
        return type(self), fields  # without the cached digest

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The stored numbers."""
        return [self.rows, self.starts, self.columns, self.distances]

    @functools.cached_property
    def digest(self) -> str:
        """A hex digest of the content."""
        digest = hashlib.sha256(f"{self.items}:{self.symmetric}".encode())
        for array in self.arrays:
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def block(self, rows: Int64, columns: Int64) -> Float32:
        """Look up the distances from some items to some others.

        Args:
            rows: (A,) item numbers.
            columns: (B,) item numbers.

        Returns:
            (A, B) float32: 0 from an item to itself, infinite where nothing is stored.
        """
        ascending, inverse = np.unique(columns, return_inverse=True)
        block = np.full((len(rows), len(ascending)), np.inf, np.float32)
        if block.size:
            entries = self._entries_of(rows)
            places = np.minimum(np.searchsorted(ascending, entries.columns), len(ascending) - 1)
            asked = ascending[places] == entries.columns
            block[entries.owners[asked], places[asked]] = entries.distances[asked]
            places = np.minimum(np.searchsorted(ascending, rows), len(ascending) - 1)
            itself = np.flatnonzero(ascending[places] == rows)
            block[itself, places[itself]] = 0
        is_ascending = len(ascending) == len(columns) and bool((inverse[1:] > inverse[:-1]).all())
        return block if is_ascending else block[:, inverse]

    def nearest(self, labels: LabelRows, start: int, stop: int, k: int) -> Neighbors:
        """Find the nearest of some labels among all of them.

        Args:
            labels: N labels.
            start: The first label whose neighbours are asked for.
            stop: The one behind the last.
            k: Neighbours of each.

        Returns:
            The lists of the labels from ``start`` to ``stop``, of what is stored; ties go to the lower position.
        """
        pairs = self._pairs_from(labels, start, stop)
        order = np.lexsort((pairs.second, pairs.distances, pairs.first))
        owners, others, values = pairs.first[order], pairs.second[order], pairs.distances[order]
        places = np.arange(len(owners)) - np.searchsorted(owners, owners)  # in the list of each label
        kept = places < k
        ids = np.full((stop - start, k), -1, np.int32)
        distances = np.full((stop - start, k), np.inf, np.float32)
        ids[owners[kept] - start, places[kept]] = others[kept]
        distances[owners[kept] - start, places[kept]] = values[kept]
        return Neighbors(ids, distances)

    def known_pairs(self, labels: LabelRows) -> KnownPairs:
        """List all pairs of two labels whose distance is known.

        Args:
            labels: N labels.

        Returns:
            The pairs, by the first label; of symmetric distances each pair once.
        """
        pairs = self._pairs_from(labels, 0, len(labels.rows))
        if not self.symmetric:
            return pairs
        once = pairs.first < pairs.second
        return KnownPairs(pairs.first[once], pairs.second[once], pairs.distances[once])

    def _entries_of(self, rows: Int64) -> _Entries:
        """The stored distances of (R,) item numbers."""
        if not len(self.rows):
            return _Entries(np.empty(0, np.int64), self.columns, self.distances)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        counts = np.where(self.rows[places] == rows, self.starts[places + 1] - self.starts[places], 0)
        owners, entries = expand_runs(self.starts[places], counts)
        return _Entries(owners, self.columns[entries], self.distances[entries])

    def _pairs_from(self, labels: LabelRows, start: int, stop: int) -> KnownPairs:
        """All known pairs whose first label is in a range, and whose second is any other."""
        rows = labels.rows[start:stop]
        entries = self._entries_of(rows)
        owners = np.concatenate([entries.owners, np.arange(len(rows))])  # other labels may be the same item
        columns = np.concatenate([entries.columns, rows])
        values = np.concatenate([entries.distances, np.zeros(len(rows), np.float32)])
        which, places = expand_runs(*labels.find(columns))
        first, second = owners[which] + start, labels.order[places]
        others = first != second
        return KnownPairs(first[others], second[others], values[which[others]])


class LabelRows:
    """The item numbers of N labels, and where each item is among them."""

    def __init__(self, rows: Int64) -> None:  # rows (N,) item numbers; several labels may be of one item
        self.rows = rows
        # (N,) positions of the labels in the order of their item numbers
        self.order: Int64 = np.argsort(rows, kind="stable")
        self._ascending: Int64 = rows[self.order]
        largest = int(self._ascending[-1])
        # where the labels of each item begin, for it is faster to look up than to search; not of few labels of many
        self._begins = np.searchsorted(self._ascending, np.arange(largest + 2)) if largest < 8 * len(rows) else None

    def find(
        self,
        items: Integer,  # (E,) item numbers
    ) -> tuple[Int64, Int64]:  # (E,) where the labels of each begin in ``order``, and (E,) how many there are
        """Find the labels of some items."""
        if self._begins is None:
            begins = np.searchsorted(self._ascending, items, side="left")
            return begins, np.searchsorted(self._ascending, items, side="right") - begins
        places = np.minimum(items, len(self._begins) - 2)
        begins = self._begins[places]
        return begins, np.where(items == places, self._begins[places + 1] - begins, 0)


def expand_runs(starts: Int64, counts: Int64) -> tuple[Int64, Int64]:  # starts (R,), counts (R,)
    """Whole numbers start, start + 1, ... of R runs one after another."""
    owners = np.repeat(np.arange(len(counts)), counts)
    shifts = starts - (np.cumsum(counts) - counts)
    return owners, np.arange(len(owners)) + shifts[owners]


def _as_vector(values: Any, key: str, name: str) -> NDArray[Any]:  # noqa: ANN401 - checked here
    """An array (T,) of whole numbers, or for "distance" of numbers."""
    try:
        vector = tensor_array(values) if hasattr(values, "detach") else np.asarray(values)
    except (ValueError, TypeError, OverflowError):  # rows of different lengths, whole numbers of any size
        vector = np.empty((0, 0), object)
    kinds, form = ("iuf", "numbers") if key == "distance" else ("iu", "whole numbers, the items from 0")
    if vector.ndim == 1 and not len(vector):
        return vector.astype(np.float64 if key == "distance" else np.int64)
    if vector.ndim != 1 or vector.dtype.kind not in kinds:
        is_array = vector.size and not vector.dtype.hasobject
        got = f"{vector.dtype} of shape {vector.shape}" if is_array else short(values)
        raise UserError(f"'{key}' of {name} should be (T,) {form}. Got {got} instead.")
    return vector


def _check_items(items: int | None, first: NDArray[Any], second: NDArray[Any], name: str) -> int:
    """The number of items, to which all item numbers must belong."""
    is_number = isinstance(items, int | np.integer) and not isinstance(items, bool)
    if items is not None and not (is_number and 1 <= items <= MOST_ITEMS):
        raise UserError(f"'items' of {name} should be a whole number from 1 to {MOST_ITEMS:,}. Got {items!r} instead.")
    count = MOST_ITEMS if items is None else int(items)
    for key, numbers in zip("ij", (first, second), strict=True):
        if numbers.min() < 0 or numbers.max() >= count:
            triple = int(np.argmax((numbers < 0) | (numbers >= count)))
            rule = f"should be an item from 0 to {count - 1:,}"
            raise UserError(f"Triple {triple} of {name} has {key}={numbers[triple]}; it {rule}.")
    return int(max(first.max(), second.max())) + 1 if items is None else count


def _check_values(first: NDArray[Any], second: NDArray[Any], values: NDArray[Any], name: str) -> None:
    """Refuse distances that are none, and those of an item from itself."""
    with np.errstate(over="ignore"):  # of float16, all of which fit
        wrong = ~((values >= 0) & ((values <= _LARGEST) | np.isinf(values)))  # NaN too
    if wrong.any():
        triple = int(np.argmax(wrong))
        raise UserError(
            f"Triple {triple} of {name}, of the items {first[triple]} and {second[triple]}, has the distance "
            f"{values[triple]:g}; it should be a number >= 0, or infinity for no comparison."
        )
    wrong = (first == second) & (values > 0) & np.isfinite(values)
    if wrong.any():
        triple = int(np.argmax(wrong))
        raise UserError(
            f"Triple {triple} of {name} has the distance {values[triple]:g} of item {first[triple]} from itself, which "
            "should be 0. Are these similarities?"
        )


def _refuse_contradiction(
    triples: Int64, values: Float32, first: NDArray[Any], second: NDArray[Any], name: str
) -> None:
    """Raise an error for the triples of one pair, whose values differ."""
    (one, value), (other, other_value) = sorted(
        (int(triples[at]), float(values[at])) for at in (np.argmin(values), np.argmax(values))
    )
    pair, other_pair = ((int(first[triple]), int(second[triple])) for triple in (one, other))
    mend = "Correct one of them"
    if pair != other_pair:
        mend += ", or give symmetric=False if the distance from i to j is not that from j to i"
    raise UserError(
        f"Triple {one} of {name} gives the distance {value:g} from item {pair[0]} to {pair[1]}, but triple {other} "
        f"gives {other_value:g} from {other_pair[0]} to {other_pair[1]}. {mend}."
    )
