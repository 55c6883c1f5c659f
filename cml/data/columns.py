"""The items of a metadata.jsonl as columns, for millions of items.

As Python objects, texts, paths or poses take 60 to 5,000 bytes per item; here an id takes 16 and a number 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_BLOCK = 4096  # items made at a time in an iteration


class Column(Sequence[T]):
    """A sequence whose items are made on access; equal to any sequence of equal items."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def _made(self, rows: slice) -> list[T]:
        items: list[T] = self._array[rows].tolist()
        return items

    @overload
    def __getitem__(self, position: int) -> T: ...

    @overload
    def __getitem__(self, position: slice) -> Column[T]: ...

    def __getitem__(self, position: int | slice) -> T | Column[T]:
        if isinstance(position, slice):
            return self._part(self._array[position])
        position = range(len(self))[position]
        return self._made(slice(position, position + 1))[0]

    def _part(self, array: NDArray[Any]) -> Column[T]:
        return type(self)(array)

    def __iter__(self) -> Iterator[T]:
        for start in range(0, len(self), _BLOCK):
            yield from self._made(slice(start, start + _BLOCK))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} items: {', '.join(map(repr, self[:3]))}{', ..' if len(self) > 3 else ''}>"


class Numbers(Column[Any]):
    """Numeric labels of one shape: each item a number or nested lists, as in JSON; the whole an array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - NumPy's protocol
        return np.array(self._array, dtype, copy=copy)


class Paths(Column[Path]):
    """Files by their names below a folder."""

    def __init__(self, array: NDArray[Any], root: Path) -> None:
        super().__init__(array)
        self._root = root

    def _part(self, array: NDArray[Any]) -> Paths:
        return Paths(array, self._root)

    def _made(self, rows: slice) -> list[Path]:
        return [self._root / name for name in self._array[rows].tolist()]


@dataclass(frozen=True)
class Items:
    """The N items of one metadata.jsonl, in the order of its lines.

    Attributes:
        folder: The folder of the metadata.jsonl.
        lines: (N,) their line numbers, from 1.
        roles: (N,) their roles, as numbers.
        ids: (N,) their ids.
        names: (N,) paths of their images below ``folder``, "" for a missing image.
        labels: N labels: an array (N, ..) if they are numbers of one shape, else as in the JSON.
    """

    folder: Path
    lines: NDArray[np.int64]
    roles: NDArray[np.int8]
    ids: NDArray[Any]
    names: NDArray[Any]
    labels: NDArray[Any] | list[Any]

    def rows(self, metadata: str) -> Iterator[tuple[Path | None, Any, str]]:
        """For each item its image (None if missing), its label, and its place: "FILE:LINE"."""
        for line, name, label in zip(Column[int](self.lines), Column[str](self.names), self.labels, strict=True):
            yield self.folder / name if name else None, label, f"{self.folder / metadata}:{line}"

    def of_role(self, role: int) -> tuple[Column[str], Paths, Sequence[Any]]:
        """The ids, images and labels of the items of one role."""
        rows = np.flatnonzero(self.roles == role)
        every = len(rows) == len(self.roles)
        ids, names = (array if every else array[rows] for array in (self.ids, self.names))
        labels: Sequence[Any]
        if isinstance(self.labels, list):
            labels = tuple(self.labels if every else (self.labels[row] for row in rows.tolist()))
        else:
            labels = Numbers(self.labels if every else self.labels[rows])
        return Column(ids), Paths(names, self.folder), labels


class Gathered:
    """Collects items, many at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # parts of the columns
        self._lines: list[NDArray[Any]] = [np.empty(0, np.int64)]
        self._roles: list[NDArray[Any]] = [np.empty(0, np.int8)]
        self._ids: list[NDArray[Any]] = [np.empty(0, _TEXT)]
        self._names: list[NDArray[Any]] = [np.empty(0, _TEXT)]
        self._labels: list[NDArray[Any] | list[Any]] = []
        self._hashes: tuple[list[NDArray[np.int64]], ...] = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def extend(
        self,
        lines: Sequence[int] | NDArray[np.int64],
        roles: Sequence[int],
        ids: list[str],
        names: list[str],
        labels: NDArray[Any] | list[Any],
    ) -> None:
        """Add N items."""
        self._lines.append(np.array(lines, np.int64))
        self._roles.append(np.array(roles, np.int8))
        self._ids.append(_packed(ids))
        self._names.append(_packed(names))
        self._labels.append(labels)
        for parts, texts in zip(self._hashes, (ids, names), strict=True):
            parts.append(np.fromiter(map(hash, texts), np.int64, len(texts)))

    def hashes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hashes of the ids and of the names of the N items so far, (N,) each; unequal hashes mean unequal texts."""
        ids, names = map(np.concatenate, self._hashes)
        return ids, names

    def items(self) -> Items:
        """All items so far."""
        for parts in (self._lines, self._roles, self._ids, self._names):
            parts[:] = [_joined(parts)]
        self._labels = [_joined_labels(self._labels)]
        return Items(self._folder, self._lines[0], self._roles[0], self._ids[0], self._names[0], self._labels[0])


def may_repeat(parts: Sequence[Gathered]) -> bool:
    """Whether an id in all ``parts`` or a name in one of them may be a duplicate: False if all hashes differ."""
    hashes = [gathered.hashes() for gathered in parts]
    columns = [np.concatenate([ids for ids, _ in hashes]), *(names for _, names in hashes)]
    return any((np.diff(np.sort(column)) == 0).any() for column in columns)


_TEXT: Any = np.dtypes.StringDType()


def _packed(texts: list[str]) -> NDArray[Any]:
    try:
        return np.array(texts, _TEXT)
    except UnicodeEncodeError:  # half a surrogate pair, which no UTF-8 can hold
        return np.array(texts, object)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
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


def _joined_labels(parts: list[NDArray[Any] | list[Any]]) -> NDArray[Any] | list[Any]:
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if parts and len(arrays) == len(parts) and len({part.shape[1:] for part in arrays}) == 1:
        kinds = {part.dtype for part in arrays}
        if len(kinds) == 1 or arrays[0].ndim > 1:
            parts.clear()
            return _joined(arrays)
    return [label for part in parts for label in (part.tolist() if isinstance(part, np.ndarray) else part)]
