"""The forms in which features are compared without training: as they are, L2-normalised, and standardised.

No form is the best of all features. A trained embedding is compared with the best one, so that it is not called better
than the features where it is only better than a badly scaled copy of them.

Standardising only weighs the columns of a distance, and the distance of L2-normalised vectors follows from that of the
vectors and their lengths. So one reading of the gallery serves all three, and two products in place of three.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.data.vectors import ComputedRows
from cml.retrieval.embedding_ranker import (
    Ranker,
    Rows,
    SquaredDistances,
    as_array,
    check_embeddings,
    copy_columns,
    embedding_ranker,
    find_duplicates,
    split_rows,
)
from cml.retrieval.metric_result import MetricResult


def name_forms(noun: str) -> tuple[str, str, str]:
    """Name the forms of features."""
    return noun, f"{noun}, L2-normalised", f"{noun}, standardised"


VECTOR_ROWS = name_forms("vectors")  # of an evaluation
STANDARDISED = VECTOR_ROWS[2]


def find_best_form(
    rows: Mapping[str, Mapping[str, MetricResult]], metric: str
) -> str | None:  # the name of the row; None if the evaluation has no rows of vectors
    """Find the form of vectors that retrieves best."""
    results = {name: rows[name][metric] for name in VECTOR_ROWS if name in rows}
    if not results:
        return None
    return max(results, key=lambda name: results[name].mean * (1 if results[name].higher_is_better else -1))


def normalize_rows(
    rows: Float32,  # (N, F)
) -> Float32:  # (N, F); a row of zeros stays as it is
    """Divide each row by its L2 norm."""
    lengths: Float32 = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return rows / lengths


class NormalizedRows(ComputedRows):
    """Rows divided by their L2 norms, which are computed as they are read."""

    def __init__(self, source: Float32 | ComputedRows) -> None:
        super().__init__(source.shape, lambda part: normalize_rows(source[part]))
        self.source = source  # the rows as they are


class StandardizedRows(ComputedRows):
    """Rows less the mean of each column and divided by its standard deviation, which are computed as they are read."""

    def __init__(self, source: Float32 | ComputedRows, mean: Float32, std: Float32) -> None:
        super().__init__(source.shape, lambda part: (source[part] - mean) / std)
        self.source, self.mean, self.std = source, mean, std


_MOST_DIFFERENT = 100.0  # times the shortest vector: beyond it, rounding of the longest would drown the shortest
Pair = tuple[Any, Any]  # the rows of the queries (Q, D) and of the gallery (G, D)


def embedding_rankers(
    embeddings: Mapping[str, Pair],  # name -> rows of the queries (Q, D) and of the gallery (G, D)
) -> dict[str, Ranker]:  # name -> ranker, in the same order
    """Rank by the squared L2 distance of several embeddings."""
    groups: dict[tuple[int, int], dict[str, Pair]] = {}
    for name, (query, gallery) in embeddings.items():
        groups.setdefault((id(_source_of(query)), id(_source_of(gallery))), {})[name] = query, gallery
    rankers: dict[str, Ranker] = {}
    for group in groups.values():
        if len(group) > 1 and all(_form_of(query) is _form_of(gallery) for query, gallery in group.values()):
            rankers |= _share_products(group)
        else:
            rankers |= {name: embedding_ranker(*pair) for name, pair in group.items()}
    return {name: rankers[name] for name in embeddings}


def _source_of(rows: Any) -> Any:  # noqa: ANN401 - rows of any kind
    """The rows that these are a form of, or themselves."""
    return rows.source if isinstance(rows, NormalizedRows | StandardizedRows) else rows


def _form_of(rows: Any) -> type | None:  # noqa: ANN401 - rows of any kind
    """The class of rows in another form; None for rows as they are, in an array, a memory map or computed."""
    return type(rows) if isinstance(rows, NormalizedRows | StandardizedRows) else None


def _share_products(forms: Mapping[str, Pair]) -> dict[str, Ranker]:
    """Rankers by forms of the same rows."""
    for pair in forms.values():
        check_embeddings(*map(as_array, pair))
    query, gallery = (as_array(_source_of(rows)) for rows in next(iter(forms.values())))
    stds = [pair[1].std for pair in forms.values() if isinstance(pair[1], StandardizedRows)]
    plain = np.ones(gallery.shape[1])  # the weights of the rows as they are, which come first
    weights = np.stack([plain, *(1 / np.square(std, dtype=np.float64) for std in stds)])
    blocks = _KeptBlocks(SquaredDistances(query, gallery, weights))
    query_lengths = _measure_lengths(query)
    gallery_lengths = query_lengths if gallery is query else _measure_lengths(gallery)
    shortest = min(query_lengths.min(), gallery_lengths.min())
    longest = max(query_lengths.max(), gallery_lengths.max())
    rankers: dict[str, Ranker] = {}
    place = 0  # of the weights of the last standardised form
    for name, pair in forms.items():
        copies, originals = find_duplicates(as_array(pair[1]))
        if isinstance(pair[1], StandardizedRows):
            place += 1
            rankers[name] = _rank_by_block(blocks, place, copies, originals)
        elif not isinstance(pair[1], NormalizedRows):
            rankers[name] = _rank_by_block(blocks, 0, copies, originals)
        elif shortest * _MOST_DIFFERENT < longest:
            rankers[name] = embedding_ranker(*pair)
        else:
            rankers[name] = _rank_by_angle(blocks, query_lengths, gallery_lengths, copies, originals)
    return rankers


class _KeptBlocks:
    """The last block of distances of each thread, which its next ranker asks for as well."""

    def __init__(self, distances: SquaredDistances) -> None:
        self._distances = distances
        self._kept = threading.local()

    def compute(self, rows: slice) -> Float64:
        """Compute the distances (W, R, G) of a block of queries, unless they are kept."""
        if getattr(self._kept, "rows", None) != rows:
            self._kept.rows = self._kept.squared = None  # frees the memory first
            self._kept.squared = self._distances.compute(rows)
            self._kept.rows = rows
        squared: Float64 = self._kept.squared
        return squared


def _rank_by_block(blocks: _KeptBlocks, place: int, copies: Int64, originals: Int64) -> Ranker:
    """Rank by the distances under one of the weights."""

    def scores(rows: slice) -> Float64:
        squared: Float64 = blocks.compute(rows)[place]
        copy_columns(squared, copies, originals)
        return squared

    return scores


def _rank_by_angle(
    blocks: _KeptBlocks, query_lengths: Float64, gallery_lengths: Float64, copies: Int64, originals: Int64
) -> Ranker:
    """Rank by the distances of L2-normalised rows.

    |a/|a| - b/|b||^2 = (|a - b|^2 - (|a| - |b|)^2) / (|a| |b|), which keeps the digits of near items.
    """

    def scores(rows: slice) -> Float64:
        squared: Float64 = blocks.compute(rows)[0].copy()
        for row, length in zip(squared, query_lengths[rows], strict=True):
            row -= np.square(length - gallery_lengths)
            row /= length * gallery_lengths
        np.maximum(squared, 0, out=squared)
        copy_columns(squared, copies, originals)
        return squared

    return scores


def _measure_lengths(rows: Rows) -> Float64:
    """The L2 norm of each row, (N,) float64."""
    parts = [np.sqrt(np.square(rows[part], dtype=np.float64).sum(axis=1)) for part in split_rows(rows)]
    return np.concatenate(parts)
