"""Approximate indexes, which are fast and may miss some neighbours: faiss's flat, HNSW and IVF, chosen by size."""

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, cast, get_args

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.errors import DataError, require_extra
from cml.retrieval.search import distances_to, nearest_embeddings, rows_at
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import digest_file

Method = Literal["exact", "flat", "hnsw", "ivf"]
Auto = Literal["auto"]
METHODS: tuple[Method, ...] = get_args(Method)


class Recall(TypedDict):
    """The share ``value`` of the true ``k`` nearest that an index finds, over some queries."""

    k: int
    queries: int
    value: float


_EXACT_TO = 200_000  # items: below, exact search takes some hundredths of a second per query
_HNSW_TO = 2_000_000  # items: beyond, its graph takes too much memory
_LINKS, _BUILD_WIDTH, _SEARCH_WIDTH = 32, 200, 128  # HNSW: edges per item, candidates in building, in search
_TRAINING = 64  # IVF: items per cell to which its centres are fitted
_BLOCK = 16_384
_RECALL_AT, _RECALL_QUERIES = 10, 256


def method_for(items: int) -> Method:
    """Choose the method for a number of items.

    Args:
        items: Number of items.

    Returns:
        "exact" up to 200,000 items or where faiss is not installed, "hnsw" up to 2,000,000, "ivf" beyond.
    """
    if items <= _EXACT_TO or find_spec("faiss") is None:
        return "exact"
    return "hnsw" if items <= _HNSW_TO else "ivf"


class ApproximateIndex:
    """A faiss index of L2 distances; items are numbered in the order in which they were added."""

    def __init__(self, index: Any) -> None:  # noqa: ANN401 - faiss has no types
        self._index = index

    @classmethod
    def build(cls, method: Method, parts: Sequence[Float32]) -> Self:
        """Index embeddings.

        Args:
            method: flat, hnsw or ivf.
            parts: The embeddings, each part (n, D) float32.

        Returns:
            The index, its items numbered through all parts.

        Raises:
            UserError: faiss is not installed.
        """
        faiss = _faiss()
        dimension, items = parts[0].shape[1], sum(map(len, parts))
        if method == "hnsw":
            index = faiss.IndexHNSWFlat(dimension, _LINKS)
            index.hnsw.efConstruction, index.hnsw.efSearch = _BUILD_WIDTH, _SEARCH_WIDTH
        elif method == "ivf":
            cells = max(1, min(round(4 * math.sqrt(items)), items // 39))  # faiss requires 39 items per cell
            index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dimension), dimension, cells)
            index.nprobe = max(8, round(cells / 16))
            drawn = np.random.default_rng(0).choice(items, min(items, _TRAINING * cells), replace=False)
            index.train(rows_at(parts, np.sort(drawn)))
        else:
            index = faiss.IndexFlatL2(dimension)
        approximate = cls(index)
        approximate.add(parts)
        return approximate

    def add(self, parts: Sequence[Float32]) -> None:
        """Append embeddings.

        Args:
            parts: The embeddings, each part (n, D) float32.
        """
        for part in parts:
            for start in range(0, len(part), _BLOCK):
                self._index.add(np.ascontiguousarray(part[start : start + _BLOCK], np.float32))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def search(self, query: Float32, k: int, among: Bools | None = None) -> Int64:
        """Find items near to queries.

        Args:
            query: Embeddings (Q, D) of the queries.
            k: Items per query.
            among: Whether each item, (n,), may be found; None for all.

        Returns:
            Positions (Q, k) of the nearest items that it finds, -1 for none.
        """
        parameters = None if among is None else self._search_among(among)
        return cast("Int64", self._index.search(np.ascontiguousarray(query, np.float32), k, params=parameters)[1])

    def _search_among(self, among: Bools) -> Any:  # noqa: ANN401 - faiss has no types
        """The parameters of a search that finds some of the items only, otherwise those of the index."""
        faiss = _faiss()
        selector = faiss.IDSelectorBitmap(np.packbits(among, bitorder="little"))
        if isinstance(self._index, faiss.IndexHNSWFlat):
            return faiss.SearchParametersHNSW(sel=selector, efSearch=self._index.hnsw.efSearch)
        if isinstance(self._index, faiss.IndexIVFFlat):
            return faiss.SearchParametersIVF(sel=selector, nprobe=self._index.nprobe)
        return faiss.SearchParameters(sel=selector)

    def check(self, method: Method, items: int, dimension: int) -> None:
        """Check that the index is the one that the manifest describes.

        Args:
            method: flat, hnsw or ivf.
            items: Number of items that it should hold.
            dimension: D of their embeddings.

        Raises:
            DataError: It has another type, number of items, dimension or distance, or is not trained.
        """
        faiss = _faiss()
        kind = {"hnsw": faiss.IndexHNSWFlat, "ivf": faiss.IndexIVFFlat}.get(method, faiss.IndexFlatL2)
        properties = (type(self._index), self._index.ntotal, self._index.d, self._index.metric_type)
        if properties != (kind, items, dimension, faiss.METRIC_L2) or not self._index.is_trained:
            raise DataError(
                f"The approximate index is {type(self._index).__name__} of {self._index.ntotal} items of "
                f"{self._index.d} numbers, but the embeddings need {kind.__name__} of {items} items of {dimension}. "
                "Build the index again."
            )

    def save(self, path: Path) -> str:
        """Write the index, atomically.

        Args:
            path: The file.

        Returns:
            SHA-256 of the file, in hexadecimal digits.

        Raises:
            OSError: The file cannot be written.
        """
        faiss = _faiss()
        with atomic_file(path) as temporary:
            with temporary.open("wb") as file:  # faiss's own writer does not fail where the end finds no room on a disk
                faiss.write_index(self._index, faiss.PyCallbackIOWriter(file.write))
            return digest_file(temporary)

    @classmethod
    def load(cls, path: Path, sha256: str | None = None) -> Self:
        """Read an index that ``save`` wrote.

        Args:
            path: The file.
            sha256: SHA-256 that the file should have; None if it is not known.

        Returns:
            The index.

        Raises:
            DataError: The file is missing, damaged or another one.
        """
        faiss = _faiss()
        limit = faiss.get_deserialization_vector_byte_limit()
        try:
            if sha256 is not None and digest_file(path) != sha256:  # faiss would read a damaged file
                raise OSError("it is not the file that was written")
            faiss.set_deserialization_vector_byte_limit(max(1, path.stat().st_size))  # no more than the file holds
            return cls(faiss.read_index(str(path)))
        except (RuntimeError, MemoryError, OSError) as error:
            why = str(error).splitlines()[0][:120]
            raise DataError(f"{path} cannot be read ({why}). Build the index again.") from None
        finally:
            faiss.set_deserialization_vector_byte_limit(limit)


def measure_recall(index: ApproximateIndex, embeddings: Sequence[Float32]) -> Recall | None:
    """Measure which share of the true nearest items an index finds for some of its own items.

    Equally near items are equally right, whichever of them is found. An item is no neighbour of itself.

    Args:
        index: The index.
        embeddings: The embeddings of all of its items, each part (n, D) float32.

    Returns:
        Recall@10 over up to 256 random items, at a smaller k in a smaller index; None if it holds a single item.
    """
    total = sum(map(len, embeddings))
    k = min(_RECALL_AT, total - 1)
    if k < 1:
        return None
    drawn = np.sort(np.random.default_rng(0).choice(total, min(_RECALL_QUERIES, total), replace=False))
    query = rows_at(embeddings, drawn)
    exact, nearest = nearest_embeddings(query, embeddings, k + 1)
    positions = index.search(query, k + 1)
    distances = distances_to(query, embeddings, positions)
    limit = np.where(nearest == drawn[:, None], 0, exact).max(axis=1)[:, None] * (1 + 1e-6)
    right = ((distances <= limit) & (positions != drawn[:, None])).sum(axis=1).clip(max=k)
    return {"k": k, "queries": len(query), "value": float(right.mean() / k)}


def _faiss() -> Any:  # noqa: ANN401 - a module without types
    with require_extra("index", "An approximate index"):
        import faiss
    return faiss
