"""The rows of an index in memory, refreshed by what any process has changed since, and the descriptions of hits."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from cml.array_types import Bools, Int64
from cml.errors import DataError
from cml.retrieval.gallery import Gallery
from cml.searching.hit import Hit
from cml.searching.index_file import AGAIN, FILE, Row

_READ = 4096  # items that are read at a time
_NOTHING = object()
_ASKED = 500  # rows that one statement asks for; old versions of SQLite take 999


Item = tuple[str, Any, str | None, str]  # id, label, path and columns, as the file holds them


class HeldRows:
    """Rows in memory: their numbers in SQLite, ascending, and their embeddings; those of removed items stay a while."""

    def __init__(self, db: sqlite3.Connection, dimension: int, after: int) -> None:
        self._last = after  # rows up to this number are left out
        (count,) = db.execute("SELECT count(*) FROM items WHERE row > ?", [self._last]).fetchone()
        room = max(16, 2 * count)  # memory that is not written is not taken
        self.gallery = Gallery(np.empty((0, dimension), np.float32), room=room)
        self._numbers = np.empty(room, np.int64)
        self.items: list[Item] = []  # N of them: reading hits from the file would cost more than finding them
        self._removals = int(db.execute("SELECT coalesce(max(number), 0) FROM removed").fetchone()[0])
        self._bytes = 4 * dimension
        self.is_new = False

    @property
    def numbers(self) -> Int64:
        """Row numbers (N,), ascending."""
        return self._numbers[: len(self.gallery.embeddings)]

    def at(self, numbers: Int64) -> Bools:
        """Whether each row (N,) is among those of some numbers."""
        is_among = np.zeros(len(self.numbers), np.bool_)
        places = np.searchsorted(self.numbers, numbers)
        known = places < len(self.numbers)
        places = places[known]
        is_among[places[self.numbers[places] == numbers[known]]] = True
        return is_among & self.gallery.is_live

    def refresh(self, db: sqlite3.Connection, folder: Path) -> None:
        """Take in what was removed and added since."""
        gone = db.execute(
            "SELECT number, row FROM removed WHERE number > ? ORDER BY number", [self._removals]
        ).fetchall()
        if gone:
            self.gallery.remove(np.flatnonzero(self.at(np.array([row for _, row in gone], np.int64))))
            self._removals = gone[-1][0]
        cursor = db.execute(
            "SELECT row, crc, id, label, path, columns, added, vector FROM items WHERE row > ? ORDER BY row",
            [self._last],
        )
        while lines := cursor.fetchmany(_READ):
            vectors = []
            for number, crc, *item in lines:
                row = Row(*item)
                if not isinstance(row.vector, bytes) or len(row.vector) != self._bytes or row.crc != crc:
                    raise DataError(
                        f"{folder / FILE} is damaged: the item in row {number} has a wrong checksum. {AGAIN}"
                    )
                if not (
                    type(row.id) is type(row.columns) is str
                    and isinstance(row.path, str | NoneType)
                    and isinstance(row.label, str | int | float | NoneType)
                ):
                    raise DataError(f"{folder / FILE} has an item in row {number} that cml did not write. {AGAIN}")
                vectors.append(row.vector)
                self.items.append(row[:4])
            start, end = len(self.numbers), len(self.numbers) + len(lines)
            if end > len(self._numbers):
                self._numbers = np.concatenate([self.numbers, np.empty(end + len(self._numbers) - start, np.int64)])
            self._numbers[start:end] = [line[0] for line in lines]
            embeddings = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, self._bytes // 4)
            if not np.isfinite(embeddings).all():
                raise DataError(f"{folder / FILE} has a vector that is not finite. {AGAIN}")
            self.gallery.append(embeddings)
            self._last = lines[-1][0]
        if 2 * len(self.gallery) < len(self.numbers):
            is_live = self.gallery.is_live
            self._numbers = self.numbers[is_live].copy()
            self.items = [item for item, is_kept in zip(self.items, is_live.tolist(), strict=True) if is_kept]
            self.gallery = Gallery(self.gallery.embeddings[is_live])
        self.is_new = True


def read_items(db: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, Item]:
    """The items of some rows, those that are still there."""
    items: dict[int, Item] = {}
    for start in range(0, len(numbers), _ASKED):
        part = numbers[start : start + _ASKED]
        wanted = f"SELECT row, id, label, path, columns FROM items WHERE row IN ({','.join('?' * len(part))})"
        items |= {
            number: (item_id, label, path, columns)
            for number, item_id, label, path, columns in db.execute(wanted, part)
        }
    return items


def describe_hit(item: Item, distance: float) -> Hit:
    """An item that was found."""
    item_id, label, path, columns = item
    if type(label) is str:
        label = _parse(label, item_id)
    place = None if path is None or path.endswith(".npy") else Path(path)  # a file of vectors is that of all of them
    return Hit(item_id, place, distance, label, {} if columns == "{}" else _parse(columns, item_id, dict))


def _parse(text: str, item_id: str, kind: type = object) -> Any:  # noqa: ANN401 - JSON
    """Read JSON of an item, which may be a stranger's."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = _NOTHING
    if isinstance(value, kind) and value is not _NOTHING:
        return value
    raise DataError(f"The index holds {text[:80]!r} of the item {item_id!r}, which cml did not write. {AGAIN}")
