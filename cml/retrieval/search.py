"""Exact nearest neighbours among embeddings that may not fit into memory: block by block, memory O(block).

Blocks are compared in float32, with one matrix product each; what comes out best is measured again in float64, and a
bound on the rounding says whether anything else could have been nearer. Where it could, the query is compared in
float64. Not for: label distances
(``LabelDistance.neighbors``), nor indexes that are quick because they may err (cml.export.approximate).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.blas_threads import one_blas_thread
from cml.errors import UserError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_SPARE = 16  # candidates beyond k that rounding may have put before a true neighbour
_QUERIES = 256  # queries a block


def nearest_embeddings(
    query: Float32,
    gallery: Sequence[Float32] | Float32,
    k: int,
    *,
    block: int = 8192,
    threads: int = 2,
) -> tuple[Float32, Int64]:
    """The k gallery items with the least L2 distance to each query, nearest first, ties to the lower item.

    Args:
        query: (Q, D).
        gallery: (G, D), or parts of it that are numbered on from each other; memory maps are read block by block.
        k: Items a query, 1 <= k <= G.
        block: Gallery items compared at a time.
        threads: Blocks of queries under way at a time; BLAS is held to one thread meanwhile.

    Returns:
        Distances (Q, k) float32 and positions (Q, k) int64 in the gallery.

    Raises:
        UserError: the shapes do not fit, k is out of range, or an embedding is not finite.
    """
    parts = [gallery] if isinstance(gallery, np.ndarray) else list(gallery)
    _check(query, parts, k, block, threads)
    if not len(query):
        return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    centre = _mean(parts, block)  # rounding grows with the norms: take off what all embeddings share
    squared, positions = np.empty((len(query), k)), np.empty((len(query), k), np.int64)
    unsure = np.arange(len(query))
    for kind in (np.float32, np.float64):
        if len(unsure):
            found = _measured(query[unsure], parts, centre, k, kind, block, threads)
            squared[unsure], positions[unsure], certain = found
            unsure = unsure[~certain]
    for row in unsure:  # more equal items than the candidates had room for
        squared[row], positions[row] = _one_query(query[row], parts, k, block)
    return np.sqrt(squared).astype(np.float32), positions


def distances_to(query: Float32, gallery: Sequence[Float32], positions: Int64) -> Float32:
    """L2 distances (Q, k) of queries (Q, D) to the gallery items at ``positions`` (Q, k); infinite where that is -1."""
    points = rows_at(gallery, positions.reshape(-1).clip(min=0)).reshape(*positions.shape, query.shape[1])
    distances = np.sqrt(_squared(query[:, None], points)).astype(np.float32)
    return np.where(positions < 0, np.float32(np.inf), distances)


def rows_at(gallery: Sequence[Float32], positions: Int64) -> Float32:
    """Rows (P, D) of a gallery in parts at ``positions`` (P,)."""
    ends = np.cumsum([len(part) for part in gallery])
    owners = np.searchsorted(ends, positions, side="right")
    rows = np.empty((len(positions), gallery[0].shape[1]), np.float32)
    for owner in np.unique(owners):
        chosen = owners == owner
        rows[chosen] = gallery[owner][positions[chosen] - (ends[owner] - len(gallery[owner]))]
    return rows


def _measured(
    query: Float32,
    parts: Sequence[Float32],
    centre: Float32,
    k: int,
    kind: type[np.floating[Any]],
    block: int,
    threads: int,
) -> tuple[Float64, Int64, NDArray[np.bool_]]:
    """Squared distances (Q, k) and positions (Q, k) of the best, and for which queries (Q,) they certainly are that."""
    total = sum(map(len, parts))
    spare = min(k + _SPARE, total)
    scores, positions, largest = _candidates(query, parts, centre, spare, kind, block, threads)
    points = rows_at(parts, positions.reshape(-1)).reshape(len(query), spare, -1)
    squared = _squared(query[:, None], points)
    order = np.lexsort((positions, squared), axis=1)[:, :k]
    squared, positions = np.take_along_axis(squared, order, 1), np.take_along_axis(positions, order, 1)
    # a sum of D products errs by at most D roundings of the sum of their sizes; what was left out scores no better
    norms = np.sqrt(np.square(query.astype(np.float64) - centre).sum(axis=1))
    error = 2 * (query.shape[1] + 8) * float(np.finfo(kind).eps) / 2 * (norms + largest) ** 2
    left_out = scores[:, -1] + np.square(norms) - error
    return squared, positions, (squared[:, -1] < left_out) | (spare == total)


def _check(query: Float32, parts: Sequence[Float32], k: int, block: int, threads: int) -> None:
    total = sum(map(len, parts))
    shapes = {part.shape[1:] for part in (query, *parts)}
    if query.ndim != 2 or len(shapes) != 1:
        raise UserError(f"Queries and gallery must be (items, D) with one D. Got {sorted(shapes)} instead.")
    if not 1 <= k <= total:
        raise UserError(f"k must be at least 1 and at most the number of gallery items, {total}. Got k={k} instead.")
    if block < 1 or threads < 1:
        raise UserError(f"'block' and 'threads' must be 1 or more. Got {block} and {threads} instead.")
    if not np.isfinite(query).all():
        raise UserError("The query embeddings must be finite, but one holds NaN or infinity.")


def _blocks(parts: Sequence[Float32], block: int) -> list[tuple[int, Float32]]:
    """Position of the first item, and the items, of each block; nothing is read yet."""
    blocks, before = [], 0
    for part in parts:
        blocks += [(before + start, part[start : start + block]) for start in range(0, len(part), block)]
        before += len(part)
    return blocks


def _mean(parts: Sequence[Float32], block: int) -> Float32:
    total = sum((rows.sum(axis=0, dtype=np.float64) for _, rows in _blocks(parts, block)), start=np.float64(0))
    mean: Float32 = np.asarray(total / sum(map(len, parts)), np.float32)
    if not np.isfinite(mean).all():
        raise UserError("The gallery embeddings must be finite, but one holds NaN or infinity.")
    return mean


def _candidates(
    query: Float32,
    parts: Sequence[Float32],
    centre: Float32,
    k: int,
    kind: type[np.floating[Any]],
    block: int,
    threads: int,
) -> tuple[Float64, Int64, float]:
    """The k best in arithmetic ``kind``: scores |g|^2 - 2 q.g and positions (Q, k), the largest norm in the gallery."""
    from cml.retrieval.top_k import top_columns

    queries, dimension = query.shape
    factors = np.empty((queries, dimension + 1), kind)  # one product gives the whole score
    np.multiply(query.astype(kind) - centre, -2, out=factors[:, :-1])
    factors[:, -1] = 1
    best = np.full((queries, k), np.inf, kind)
    positions = np.full((queries, k), -1, np.int64)
    largest = 0.0
    rows = [slice(start, min(start + _QUERIES, queries)) for start in range(0, queries, _QUERIES)]

    def compare(which: slice, start: int, points: NDArray[Any]) -> None:
        scores = factors[which] @ points.T  # (R, b)
        columns = top_columns(scores, min(k, len(points)))
        # earlier items come first, so that a tie keeps the lower position
        both = np.concatenate([best[which], np.take_along_axis(scores, columns, 1)], axis=1)
        places = np.concatenate([positions[which], columns + start], axis=1)
        order = top_columns(both, k)
        best[which], positions[which] = np.take_along_axis(both, order, 1), np.take_along_axis(places, order, 1)

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for start, items in _blocks(parts, block):
            points = np.empty((len(items), dimension + 1), kind)
            np.subtract(items, centre, out=points[:, :-1])
            points[:, -1] = np.einsum("ij,ij->i", points[:, :-1], points[:, :-1])
            largest = max(largest, float(points[:, -1].max()))
            if largest > 1e30:  # float32 ends at 3e38, and the product holds sums of these
                raise UserError(f"The embeddings are too large to be compared: a norm is {np.sqrt(largest):.2g}.")
            for _ in pool.map(compare, rows, repeat(start), repeat(points)):
                pass
    return best.astype(np.float64), positions, float(np.sqrt(largest))


def _squared(query: NDArray[Any], points: Float32) -> Float64:
    difference = points.astype(np.float64) - query
    squared: Float64 = np.square(difference).sum(axis=-1)
    return squared


def _one_query(query: Float32, parts: Sequence[Float32], k: int, block: int) -> tuple[Float64, Int64]:
    """The answer by float64 alone, for the query whose neighbours lie too close together for float32."""
    best, positions = np.empty(0), np.empty(0, np.int64)
    for start, items in _blocks(parts, block):
        both = np.concatenate([best, _squared(query, items)])
        places = np.concatenate([positions, np.arange(start, start + len(items))])
        order = np.lexsort((places, both))[:k]
        best, positions = both[order], places[order]
    return best, positions
