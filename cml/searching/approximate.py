"""``index.faiss``: the neighbours of a large index, found fast and with some missing (faiss, the extra ``index``).

It is a cache of ``index.sqlite``. Where it is missing, damaged or of other items, search compares with every item.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, TypedDict, cast

import msgspec
import numpy as np

from cml.array_types import Float32, Int64
from cml.errors import DataError, UserError, require_extra
from cml.retrieval.search import nearest_embeddings
from cml.searching.index_file import AGAIN, FILE, Row
from cml.searching.index_rows import HeldRows
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import digest_file

FAISS = "index.faiss"
_EXACT_TO = 200_000  # items: below, exact search takes some hundredths of a second per query
_HNSW_TO = 2_000_000  # items: beyond, its graph takes too much memory
_BESIDE = 10_000  # rows that are searched exactly beside it, or a tenth of its rows if that is more
_LIVE = 0.7  # the least share of its rows that are still items; below, it is made anew
_LINKS, _BUILD_WIDTH, _SEARCH_WIDTH = 32, 200, 128  # HNSW: edges per item, candidates in building, in search
_TRAINING = 64  # IVF: items per cell to which its centres are fitted
_BLOCK = 16_384
_RECALL_AT, _RECALL_QUERIES = 10, 256
_ASKED = 500  # rows that one statement asks for


class Recall(TypedDict):
    """The share ``value`` of the true ``k`` nearest that an index finds, over some queries."""

    k: int
    queries: int
    value: float


class _About(msgspec.Struct):
    """What ``index.sqlite`` notes of the file."""

    sha256: str
    last: int
    recall: Recall | None


@dataclass
class Neighbors:
    """A faiss index of L2 distances, whose ids are numbers of rows."""

    index: Any  # faiss's ``IndexIDMap`` over HNSW or IVF
    last: int  # the largest number of its rows; those after it are searched beside it
    recall: Recall | None  # the measured share of the true neighbours that it finds

    @staticmethod
    def is_due(total: int, covered: int) -> bool:
        """Whether it should be made or extended, for a number of items of which it covers some."""
        is_large = total > _EXACT_TO and find_spec("faiss") is not None
        return is_large and total - covered > max(_BESIDE, covered // 10)

    @classmethod
    def make(cls, numbers: Int64, rows: Float32, earlier: Self | None) -> Self:
        """Index rows (N, D) with their numbers (N,), ascending; an earlier index with few dead rows is extended."""
        faiss = _faiss()
        if earlier is not None and np.searchsorted(numbers, earlier.last, "right") > _LIVE * earlier.index.ntotal:
            index = faiss.clone_index(earlier.index)  # in the other one, threads may be searching
            first = int(np.searchsorted(numbers, earlier.last, "right"))
        else:
            index, first = faiss.IndexIDMap(_empty(rows)), 0
        for start in range(first, len(rows), _BLOCK):
            part = slice(start, start + _BLOCK)
            index.add_with_ids(np.ascontiguousarray(rows[part]), numbers[part])
        made = cls(index, int(numbers[-1]), None)
        made.recall = made._measure_recall(numbers, rows)
        return made

    @property
    def method(self) -> str:
        """Hnsw or ivf."""
        return "hnsw" if "HNSW" in type(_faiss().downcast_index(self.index.index)).__name__ else "ivf"

    def save(self, folder: Path) -> str:
        """Write the file, atomically; returns what ``index.sqlite`` is to note of it."""
        faiss = _faiss()
        with atomic_file(folder / FAISS) as temporary:
            with temporary.open("wb") as file:  # faiss's own writer does not fail where the end finds no room on a disk
                faiss.write_index(self.index, faiss.PyCallbackIOWriter(file.write))
            digest = digest_file(temporary)
        return json.dumps({"sha256": digest, "last": self.last, "recall": self.recall})

    @classmethod
    def load(cls, folder: Path, about: str, dimension: int) -> Self | None:
        """Read the file; None if it is not the one that ``index.sqlite`` notes, or faiss is not installed."""
        path = folder / FAISS
        if find_spec("faiss") is None or not path.is_file() or path.is_symlink():
            return None
        faiss = _faiss()
        limit = faiss.get_deserialization_vector_byte_limit()
        try:
            noted = msgspec.json.decode(about, type=_About)
            if digest_file(path) != noted.sha256:  # faiss would read a damaged file
                return None
            faiss.set_deserialization_vector_byte_limit(max(1, path.stat().st_size))  # no more than the file holds
            index = faiss.read_index(str(path))  # of its own kind already
            inner = faiss.downcast_index(index.index) if isinstance(index, faiss.IndexIDMap) else None
            is_known = isinstance(inner, faiss.IndexHNSWFlat | faiss.IndexIVFFlat)
            if not is_known or (index.d, index.metric_type) != (dimension, faiss.METRIC_L2) or not index.is_trained:
                return None
            return cls(index, noted.last, noted.recall)
        except (msgspec.MsgspecError, RuntimeError, MemoryError, OSError):
            return None
        finally:
            faiss.set_deserialization_vector_byte_limit(limit)

    def search(
        self,
        db: sqlite3.Connection,
        held: HeldRows,
        query: Float32,  # embeddings (Q, D)
        k: int,
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Find items near to queries: by faiss, and exactly among the rows beside it."""
        if not np.isfinite(query).all():
            raise UserError("The query embeddings must be finite, but one holds NaN or infinity.")
        wanted = min(k, self.index.ntotal)
        while True:
            candidates: Int64 = self.index.search(query, wanted)[1]
            vectors = _read_vectors(db, np.unique(candidates[candidates >= 0]).tolist(), query.shape[1])
            least = min(sum(number in vectors for number in row) for row in candidates.tolist())
            if least >= min(k, len(vectors)) or wanted == self.index.ntotal:
                break
            wanted = min(2 * wanted + 16, self.index.ntotal)  # some are of removed items
        beside = min(k, len(held.gallery))
        if beside:
            far, places = held.gallery.search(query, beside)
            fresh = list(zip(held.numbers[places].tolist(), far.tolist(), strict=True))
        found: list[list[tuple[float, int]]] = []
        for row, point in enumerate(query.astype(np.float64)):
            live = [number for number in candidates[row].tolist() if number in vectors]
            near = [(float(np.float32(np.sqrt(np.square(vectors[n] - point).sum()))), n) for n in live]
            if beside:
                near += [(distance, number) for number, distance in zip(*fresh[row], strict=True)]
            found.append(sorted(near)[:k])
        return [[number for _, number in row] for row in found], [[distance for distance, _ in row] for row in found]

    def _measure_recall(self, numbers: Int64, rows: Float32) -> Recall:
        """The share of the true nearest items that it finds for some of its own items, which do not count themselves.

        Equally near items are equally right, whichever of them is found.
        """
        k = min(_RECALL_AT, len(rows) - 1)
        drawn = np.sort(np.random.default_rng(0).choice(len(rows), min(_RECALL_QUERIES, len(rows)), replace=False))
        query = np.ascontiguousarray(rows[drawn])
        exact, nearest = nearest_embeddings(query, rows, k + 1)
        found = self.index.search(query, k + 1)[1]
        at = np.searchsorted(numbers, found).clip(max=len(numbers) - 1)
        points = rows[at].astype(np.float64)
        distances = np.sqrt(np.square(points - query[:, None]).sum(axis=-1))
        limit = np.where(nearest == drawn[:, None], 0, exact).max(axis=1)[:, None] * (1 + 1e-6)
        right = ((distances <= limit) & (at != drawn[:, None]) & (numbers[at] == found)).sum(axis=1).clip(max=k)
        return {"k": k, "queries": len(query), "value": float(right.mean() / k)}


def _empty(rows: Float32) -> Any:  # noqa: ANN401 - faiss has no types
    """An index for rows (N, D), trained if its kind needs that."""
    faiss = _faiss()
    dimension = rows.shape[1]
    if len(rows) <= _HNSW_TO:
        index = faiss.IndexHNSWFlat(dimension, _LINKS)
        index.hnsw.efConstruction, index.hnsw.efSearch = _BUILD_WIDTH, _SEARCH_WIDTH
        return index
    cells = max(1, min(round(4 * math.sqrt(len(rows))), len(rows) // 39))  # faiss requires 39 items per cell
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dimension), dimension, cells)
    index.nprobe = max(8, round(cells / 16))
    drawn = np.random.default_rng(0).choice(len(rows), min(len(rows), _TRAINING * cells), replace=False)
    index.train(np.ascontiguousarray(rows[np.sort(drawn)]))
    return index


def _read_vectors(db: sqlite3.Connection, numbers: Sequence[int], dimension: int) -> dict[int, Float32]:
    """The vectors of the rows that are still there."""
    vectors = {}
    for start in range(0, len(numbers), _ASKED):
        part = numbers[start : start + _ASKED]
        for number, crc, *item in db.execute(
            "SELECT row, crc, id, label, path, columns, added, vector FROM items"
            f" WHERE row IN ({','.join('?' * len(part))})",
            part,
        ):
            row = Row(*item)
            if row.crc != crc or len(row.vector) != 4 * dimension:
                raise DataError(f"{FILE} is damaged: the item in row {number} has a wrong checksum. {AGAIN}")
            vectors[number] = np.frombuffer(row.vector, "<f4")
    return cast("dict[int, Float32]", vectors)


def _faiss() -> Any:  # noqa: ANN401 - a module without types
    with require_extra("index", "An approximate index"):
        import faiss
    return faiss
