"""The items of a metadata.jsonl as columns: an id takes 16 bytes and a number 8, as Python objects 60 to 5,000."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cml.array_types import Floating, Int64

_BLOCK = 4096  # items made at a time in an iteration
# NumPy 2's strings; in NumPy 1.26 Python's own, which take more memory
_TEXT: Any = np.dtypes.StringDType() if hasattr(np.dtypes, "StringDType") else np.dtype(object)
RawLabels = NDArray[Any] | list[Any]  # an array if they are numbers of one shape, else as in the JSON


class Column(Sequence[Any]):
    """A sequence whose items are made on access; it equals any sequence with equal items."""

    def __init__(
        self,
        array: NDArray[Any],
        # a folder, of which the items are paths, None for an empty name; by default, the items are those of the array
        root: Path | None = None,
    ) -> None:
        self._array, self._root = array, root

    def __len__(self) -> int:
        return len(self._array)

    def _make(self, rows: slice) -> list[Any]:
        items: list[Any] = self._array[rows].tolist()
        return items if self._root is None else [self._root / name if name else None for name in items]

    def __getitem__(self, position: int | slice | Int64) -> Any:  # noqa: ANN401 - an item, or a Column of several
        if isinstance(position, slice | np.ndarray):
            return type(self)(self._array[position], self._root)
        position = range(len(self._array))[position]
        return self._make(slice(position, position + 1))[0]

    def __iter__(self) -> Iterator[Any]:
        starts = range(0, len(self), _BLOCK)
        return itertools.chain.from_iterable(self._make(slice(start, start + _BLOCK)) for start in starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} items: {', '.join(map(repr, self[:3]))}{', ...' if len(self) > 3 else ''}>"


class Numbers(Column):
    """Numeric labels of one shape: each item a number or nested lists, as in JSON; the whole an array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - NumPy's protocol
        if copy is None:  # NumPy 1.26 does not know it
            return np.asarray(self._array, dtype)
        return np.array(self._array, dtype, copy=copy)


@dataclass(frozen=True)
class Items:
    """The N items of one metadata.jsonl, in the order of its lines."""

    folder: Path  # the folder of the metadata.jsonl
    lines: Int64  # the line numbers from 1, (N,)
    roles: NDArray[np.int8]  # the roles as numbers, (N,)
    ids: NDArray[Any]  # the ids, (N,)
    names: NDArray[Any]  # the paths of the images below ``folder``, "" for a missing image or none, (N,)
    labels: RawLabels  # the N labels
    # the vectors of the items, (N, F), mapped from their file; None if the items are images
    vectors: Floating | None = None

    def rows(self, metadata: str) -> Iterator[tuple[Path | None, Any, str]]:
        """Go through the items.

        Returns for each item its image (None if missing), its label, and its place: "FILE:LINE".
        """
        for line, name, label in zip(Column(self.lines), Column(self.names), self.labels, strict=True):
            yield self.folder / name if name else None, label, f"{self.folder / metadata}:{line}"

    def of_role(self, role: int) -> tuple[Column, Column, Sequence[Any], Int64]:
        """Select the items of one role.

        Returns the ids, images (None for no image) and labels of the items, and their positions.
        """
        rows = np.flatnonzero(self.roles == role)
        every = len(rows) == len(self.roles)
        ids, names = (array if every else array[rows] for array in (self.ids, self.names))
        labels: Sequence[Any]
        if isinstance(self.labels, list):
            labels = tuple(self.labels if every else (self.labels[row] for row in rows.tolist()))
        else:
            labels = Numbers(self.labels if every else self.labels[rows])
        return Column(ids), Column(names, self.folder), labels, rows


class ItemCollector:
    """Collects the items of a folder's metadata.jsonl, many at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # parts of lines, roles, ids and names, and of the hashes of ids and names
        self._parts = [[np.empty(0, kind)] for kind in (np.int64, np.int8, _TEXT, _TEXT, np.int64, np.int64)]
        self._labels: list[RawLabels] = []

    def extend(
        self,
        lines: ArrayLike,  # line numbers in metadata.jsonl, from 1, (N,)
        roles: ArrayLike,  # roles as numbers, (N,)
        ids: list[str],
        names: list[str],  # paths of the N images below the folder, "" for a missing image or none
        labels: RawLabels,
    ) -> None:
        """Add N items."""
        texts = ids, names
        columns: list[NDArray[Any]] = [np.array(lines, np.int64), np.array(roles, np.int8), *map(_pack, texts)]
        present = [name for name in names if name]
        columns += [np.fromiter(map(hash, column), np.int64, len(column)) for column in (ids, present)]
        for parts, column in zip(self._parts, columns, strict=True):
            parts.append(column)
        self._labels.append(labels)

    def hashes(self) -> tuple[Int64, Int64]:
        """Return hashes of the items added so far; unequal hashes mean unequal texts."""
        return np.concatenate(self._parts[4]), np.concatenate(self._parts[5])

    def items(self) -> Items:
        """Return all items. It can be called once, at the end, because it releases the parts."""
        lines, roles, ids, names = map(_join, self._parts[:4])
        return Items(self._folder, lines, roles, ids, names, _join_labels(self._labels))


def may_repeat(
    parts: Sequence[ItemCollector],
) -> bool:  # False if all hashes differ, so that nothing is repeated; otherwise True
    """Tell whether an id or the name of an image may occur twice."""
    hashes = [gathered.hashes() for gathered in parts]
    columns = [np.concatenate([ids for ids, _ in hashes]), *(names for _, names in hashes)]
    return any((np.diff(np.sort(column)) == 0).any() for column in columns)


def _pack(texts: list[str]) -> NDArray[Any]:
    try:
        return np.array(texts, _TEXT)
    except UnicodeEncodeError:  # half a surrogate pair, which no UTF-8 can hold
        return np.array(texts, object)


def _join(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """The parts as one array; each part is released once it is copied."""
    if len(parts) == 1:
        return parts[0]
    kinds = {part.dtype for part in parts}
    dtype = np.dtype(object) if np.dtype(object) in kinds else np.result_type(*kinds)
    stop = sum(map(len, parts))
    whole = np.empty((stop, *parts[0].shape[1:]), dtype)
    while parts:
        part = parts.pop()
        whole[stop - len(part) : stop] = part
        stop -= len(part)
    return whole


def _join_labels(parts: list[RawLabels]) -> RawLabels:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    forms = {(part.shape[1:], part.dtype if part.ndim == 1 else None) for part in arrays}
    if len(arrays) == len(parts) and len(forms) == 1:
        parts.clear()
        return _join(arrays)
    return [label for part in parts for label in (part.tolist() if isinstance(part, np.ndarray) else part)]
