"""A search index as it is at one time: its files, opened and checked, and the search in them. Nothing here writes."""

import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.data.computed_rows import ComputedRows
from cml.data.image_list import COLUMNS
from cml.errors import DataError
from cml.export.approximate import ApproximateIndex
from cml.export.index_manifest import AGAIN, MANIFEST, PARTS, IndexManifest, read_index_manifest
from cml.retrieval.search import distances_to, nearest_embeddings
from cml.searching.embedding_folder import EmbeddingFolder, read_embedding_manifest
from cml.searching.hit import Hit
from cml.storage.npy import map_array
from cml.storage.regular_file import digest_file

_ATTEMPTS = 20
_NO_LABEL = ("item_id", "file_name", "role", "indexed_at", COLUMNS)


@dataclass(frozen=True)
class IndexState:
    """An index at one time. Its rows are numbered through all parts, removed ones included.

    Attributes:
        folder: Its folder.
        manifest: Its manifest.json.
        parts: Its embeddings.
        removed: Positions of the removed rows, ascending.
        stamp: What tells the file of the manifest from that of any other state.
    """

    folder: Path
    manifest: IndexManifest
    parts: tuple[EmbeddingFolder, ...] = field(repr=False)
    removed: Int64 = field(repr=False)
    stamp: tuple[int, ...] = field(repr=False)

    @classmethod
    def open(cls, folder: Path, earlier: "IndexState | None" = None) -> Self:
        """Open an index.

        Args:
            folder: Its folder.
            earlier: The index at an earlier time, whose files that are still in use are not read again.

        Returns:
            The index as it is now.

        Raises:
            DataError: It is not a finished index, or is damaged.
        """
        for attempt in itertools.count(1):
            manifest, stamp = read_index_manifest(folder), read_stamp(folder)
            try:
                return cls._open(folder, manifest, stamp, earlier)
            except DataError:  # another process may just have put other files in place of those that it named
                if attempt == _ATTEMPTS or read_stamp(folder) == stamp:
                    raise
        raise AssertionError

    @classmethod
    def _open(cls, folder: Path, manifest: IndexManifest, stamp: tuple[int, ...], earlier: "IndexState | None") -> Self:
        known = {part.folder.name: part for part in earlier.parts} if earlier is not None else {}
        parts = tuple(_open_part(folder / PARTS / name, known.get(name)) for name in manifest["parts"])
        removed = _open_removed(folder, manifest, sum(map(len, parts)))
        state = cls(folder, manifest, parts, removed, stamp)
        if len(state) != sum(map(len, parts)) - len(removed):
            raise DataError(f"{folder} has lost items: its manifest counts {len(state)}. {AGAIN}")
        for part in parts:
            model = part.manifest["model"], part.manifest["dimension"]
            if model != (manifest["model"], manifest["dimension"]):
                raise DataError(f"{part.folder} is of another model than the index {folder}. {AGAIN}")
        if state.covered not in state._starts:
            raise DataError(f"{folder / MANIFEST} does not describe a search index. {AGAIN}")
        return state

    def keep_approximate(self, earlier: "IndexState") -> Self:
        """Take the approximate index of an earlier time, if it was opened and is still the same.

        Args:
            earlier: The index at that time.

        Returns:
            This index.
        """
        same = self.manifest["file"] == earlier.manifest["file"]
        if same and self.manifest.get("sha256") == earlier.manifest.get("sha256") and "approximate" in vars(earlier):
            vars(self)["approximate"] = earlier.approximate
        return self

    def __len__(self) -> int:
        return self.manifest["items"]

    @property
    def embeddings(self) -> list[Float32]:
        """The embeddings of all parts, mapped into memory."""
        return [part.embeddings for part in self.parts]

    @property
    def rows(self) -> int:
        """The number of rows, removed ones included."""
        return int(self._starts[-1])

    @property
    def covered(self) -> int:
        """The number of rows that the approximate index holds, those of the first parts."""
        return 0 if self.manifest["file"] is None else self.manifest.get("covered", self.rows)

    @property
    def covered_parts(self) -> int:
        """The number of parts that the approximate index holds."""
        return int(np.searchsorted(self._starts, self.covered))

    @functools.cached_property
    def approximate(self) -> ApproximateIndex:
        """The approximate index; ``DataError`` if its file is missing, damaged or of other items."""
        assert self.manifest["file"] is not None
        index = ApproximateIndex.load(self.folder / self.manifest["file"], self.manifest.get("sha256"))
        index.check(self.manifest["method"], self.covered, self.manifest["dimension"])
        return index

    def search(self, query: Float32, k: int, *, exact: bool = False) -> tuple[Float32, Int64]:
        """Find the rows nearest to queries.

        Args:
            query: Embeddings (Q, D) of the queries.
            k: Rows found for each, 1 <= k <= the number of items.
            exact: Compare with every item, even if the index is approximate.

        Returns:
            L2 distances (Q, k), nearest first, and positions (Q, k), -1 where an approximate index finds no item.

        Raises:
            UserError: Queries do not fit.
            DataError: The index is damaged.
        """
        if exact or not self.covered:
            distances, positions = self._search_exactly(query, k)
        else:
            among = self._live[: self.covered] if len(self.removed) else None
            positions = self.approximate.search(query, k, among)
            distances = distances_to(query, self.embeddings, positions)
            beside = int(np.count_nonzero(self._live[self.covered :]))
            if beside:
                near, at = self._search_exactly(query, min(k, beside), self.covered_parts)
                distances, positions = np.concatenate([distances, near], 1), np.concatenate([positions, at], 1)
                order = np.lexsort((positions, distances), axis=1)[:, :k]
                distances = np.take_along_axis(distances, order, 1)
                positions = np.take_along_axis(positions, order, 1)
        if not np.isfinite(distances[positions >= 0]).all():
            raise DataError(f"The embeddings of {self.folder} hold NaN, infinity or too large numbers. {AGAIN}")
        return distances, positions

    def hits(self, distances: Float32, positions: Int64) -> list[list[Hit]]:
        """Describe rows that were found.

        Args:
            distances: (Q, k) distances.
            positions: (Q, k) positions; -1 is left out.

        Returns:
            The items of each query.
        """
        items = {position: self._describe(position) for position in np.unique(positions).tolist() if position >= 0}

        def hit(position: int, distance: float) -> Hit:
            item_id, path, label, columns = items[position]
            return Hit(item_id, path, distance, label, columns)

        return [
            [hit(position, distance) for position, distance in zip(*row, strict=True) if position >= 0]
            for row in zip(positions.tolist(), distances.tolist(), strict=True)
        ]

    def position(self, item_id: str) -> int | None:
        """The position of an item; None if the index does not hold it."""
        for part, start in zip(self.parts, self._starts.tolist(), strict=False):
            row = part.rows.get(item_id)
            if row is not None and self._live[start + row]:
                return int(start + row)
        return None

    def had(self, item_id: str) -> bool:
        """Whether a row, perhaps a removed one, is of an item."""
        return any(item_id in part.rows for part in self.parts)

    def live_rows(self, number: int) -> Int64:
        """The rows of a part that were not removed."""
        start = int(self._starts[number])
        return np.flatnonzero(self._live[start : start + len(self.parts[number])])

    def items(self) -> Iterator[tuple[str, Path | None, float]]:
        """Id, path and time of indexing, in seconds since 1970, of every item in order."""
        for number, part in enumerate(self.parts):
            written = (part.folder / MANIFEST).stat().st_mtime
            for row in self.live_rows(number).tolist():
                entry = part.item(row)
                yield str(entry["item_id"]), _path_of(part, entry), float(entry.get("indexed_at", written))

    @functools.cached_property
    def _starts(self) -> Int64:
        """Position of the first row of every part, and at the end the number of rows."""
        return np.cumsum([0, *map(len, self.parts)], dtype=np.int64)

    @functools.cached_property
    def _live(self) -> Bools:
        """Whether each row was not removed."""
        live = np.ones(self.rows, np.bool_)
        live[self.removed] = False
        return live

    def _search_exactly(self, query: Float32, k: int, first: int = 0) -> tuple[Float32, Int64]:
        """The nearest rows of the parts from ``first`` on."""
        distances, found = nearest_embeddings(query, self._galleries[first:], k)
        if not len(self.removed):
            return distances, found + self._starts[first]
        before = int(np.count_nonzero(self._live[: self._starts[first]]))
        return distances, self._live_positions[before + found]

    @functools.cached_property
    def _live_positions(self) -> Int64:
        return np.flatnonzero(self._live)

    @functools.cached_property
    def _galleries(self) -> list[Float32]:
        """The embeddings of every part without its removed rows, which are left out as the others are read."""
        galleries: list[Any] = []
        for number, part in enumerate(self.parts):
            rows = self.live_rows(number)
            if len(rows) == len(part):
                galleries.append(part.embeddings)
            else:
                galleries.append(ComputedRows((len(rows), self.manifest["dimension"]), _Selected(part, rows)))
        return galleries

    def _describe(self, position: int) -> tuple[str, Path | None, Any, Mapping[str, Any]]:
        number = int(np.searchsorted(self._starts, position, side="right")) - 1
        part = self.parts[number]
        entry = part.item(position - int(self._starts[number]))
        label = next((value for name, value in entry.items() if name not in _NO_LABEL), None)
        path = _path_of(part, entry)
        is_own = path is not None and path.suffix != ".npy"  # a file of vectors is that of all of them
        columns = entry.get(COLUMNS)
        known = columns if isinstance(columns, dict) else {}
        return str(entry["item_id"]), path if is_own else None, label, known


@dataclass(frozen=True)
class _Selected:
    """Reads some of the rows of a part."""

    part: EmbeddingFolder
    chosen: Int64

    def __call__(self, rows: slice | Int64) -> Float32:
        return self.part.embeddings[self.chosen[rows]]


def read_stamp(folder: Path) -> tuple[int, ...]:
    """What tells the manifest of an index from those before and after it, as each has a file of its own.

    Args:
        folder: Folder of the index.

    Returns:
        Numbers of the file.

    Raises:
        DataError: The manifest is missing.
    """
    try:
        file = os.stat(folder / MANIFEST)
    except OSError as error:
        raise DataError(f"The index {folder} is gone ({error.strerror or error}).") from None
    return file.st_ino, file.st_mtime_ns, file.st_size


def _path_of(part: EmbeddingFolder, entry: dict[str, Any]) -> Path | None:
    return Path(part.manifest["images"]) / entry["file_name"] if "file_name" in entry else None


def _open_part(folder: Path, known: EmbeddingFolder | None) -> EmbeddingFolder:
    """A part; one that is known already is not read again, if it is still the same."""
    if known is not None and known.manifest == read_embedding_manifest(folder):
        return known
    part = EmbeddingFolder.open(folder)
    part.map_items()
    return part


def _open_removed(folder: Path, manifest: IndexManifest, rows: int) -> Int64:
    """The removed positions."""
    entry = manifest.get("removed")
    if entry is None:
        return np.empty(0, np.int64)
    path = folder / entry["file"]
    try:
        is_sound = digest_file(path) == entry["sha256"]
        positions = np.array(map_array(path))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}). {AGAIN}") from None
    is_sound = is_sound and positions.dtype == np.int64 and positions.shape == (entry["items"],)
    if not is_sound or (np.diff(positions, prepend=-1, append=rows) < 1).any():
        raise DataError(f"{path} is damaged: it does not hold the removed items. {AGAIN}")
    return positions
