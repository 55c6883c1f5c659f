"""Exact nearest neighbours among embeddings that may not fit into memory: block by block, memory O(block).

A block is compared in float32, with one matrix product. Items whose score, less a bound on its rounding, is no worse
than the k nearest so far are measured in float64, so that the result is that of float64.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.blas_threads import one_blas_thread
from cml.errors import UserError
from cml.processes.cores import CORES

_QUERIES = 256  # queries a block
_ROUNDING, _ROUNDING_64 = (float(np.finfo(kind).eps) / 2 for kind in (np.float32, np.float64))  # of one operation
_UNDERFLOW = float(np.finfo(np.float32).tiny)


def nearest_embeddings(
    query: Float32,  # (Q, D) embeddings
    gallery: Sequence[Float32] | Float32,  # (G, D) embeddings, or parts of it in order, which may be memory maps
    k: int,
    *,
    block: int = 8192,
    threads: int = CORES,
) -> tuple[Float32, Int64]:  # L2 distances (Q, k), nearest first, and positions (Q, k) in the gallery
    """Find the k gallery embeddings nearest to each query, exactly; ties go to the lower position."""
    from cml.retrieval.top_k import keep_nearest

    parts = [gallery] if isinstance(gallery, np.ndarray) else list(gallery)
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
    if not len(query):
        return np.empty((0, k), np.float32), np.empty((0, k), np.int64)
    query = np.ascontiguousarray(query, np.float32)
    sums = (rows.sum(axis=0, dtype=np.float64) for _, rows in _blocks(parts, block))
    centre = np.asarray(sum(sums, start=np.float64(0)) / total, np.float32)
    if not np.isfinite(centre).all():
        raise UserError("The gallery embeddings must be finite, but one holds NaN or infinity.")
    # rounding grows with the norms: take off what all embeddings share
    norms = np.square(query.astype(np.float64) - centre).sum(axis=1)  # (Q,)
    check_size(float(norms.max()))
    queries, dimension = query.shape
    factors = np.empty((queries, dimension + 1), np.float32)  # one product gives the score |g|^2 - 2 q.g
    np.multiply(query - centre, -2, out=factors[:, :-1])
    factors[:, -1] = 1
    rows = [slice(start, min(start + _QUERIES, queries)) for start in range(0, queries, _QUERIES)]
    # the nearest so far, heaps with the farthest in front
    squared, positions = np.full((queries, k), np.inf), np.full((queries, k), -1, np.int64)

    def _scan(rows_of_block: slice, before: int, items: Float32, points: Float32, slack: Float64) -> None:
        scores = factors[rows_of_block] @ points.T  # (R, b)
        chosen = squared[rows_of_block], positions[rows_of_block]
        keep_nearest(scores, slack[rows_of_block], query[rows_of_block], items, before, *chosen)

    with one_blas_thread(), ThreadPoolExecutor(threads) as pool:
        for before, stored in _blocks(parts, block):
            items = np.array(stored, np.float32)  # off the disk once
            points = np.empty((len(items), dimension + 1), np.float32)
            np.subtract(items, centre, out=points[:, :-1])
            points[:, -1] = np.einsum("ij,ij->i", points[:, :-1], points[:, :-1])
            largest = float(points[:, -1].max())
            check_size(largest)
            slack = _rounding_bound(norms, largest, dimension) - norms
            for _ in pool.map(_scan, rows, repeat(before), repeat(items), repeat(points), repeat(slack)):
                pass
    order = np.lexsort((positions, squared), axis=1)
    return (np.sqrt(np.take_along_axis(squared, order, 1)).astype(np.float32), np.take_along_axis(positions, order, 1))


def nearest_others(
    embeddings: Float32,  # (N, D) embeddings
    items: Int64,  # (Q,) positions of the queries among them
    k: int,
) -> tuple[Float32, Int64]:  # L2 distances (Q, k), nearest first, and positions (Q, k)
    """Find the k nearest of all other items for some items, exactly."""
    distances, positions = nearest_embeddings(embeddings[items], embeddings, k + 1)
    is_other = positions != items[:, None]
    is_other[is_other.all(axis=1), -1] = False  # more than k others lie where the item itself does
    return distances[is_other].reshape(len(items), k), positions[is_other].reshape(len(items), k)


def distances_to(
    query: Float32,  # (Q, D) embeddings
    gallery: Sequence[Float32],  # parts of the (G, D) gallery, in order
    positions: Int64,  # (Q, k) positions in the gallery; -1 where there is no item
) -> Float32:  # (Q, k) float32; infinite where the position is -1
    """Compute the L2 distances of queries to some gallery items."""
    points = rows_at(gallery, positions.reshape(-1).clip(min=0)).reshape(*positions.shape, query.shape[1])
    squared = np.square(points.astype(np.float64) - query[:, None]).sum(axis=-1)
    return np.where(positions < 0, np.float32(np.inf), np.sqrt(squared).astype(np.float32))


def rows_at(gallery: Sequence[Float32], positions: Int64) -> Float32:
    """Rows (P, D) of a gallery in parts at ``positions`` (P,)."""
    ends = np.cumsum([len(part) for part in gallery])
    owners = np.searchsorted(ends, positions, side="right")
    rows = np.empty((len(positions), gallery[0].shape[1]), np.float32)
    for owner in np.unique(owners):
        chosen = owners == owner
        rows[chosen] = gallery[owner][positions[chosen] - (ends[owner] - len(gallery[owner]))]
    return rows


def _blocks(parts: Sequence[Float32], block: int) -> list[tuple[int, Float32]]:
    """Position of the first item, and the items, of each block; nothing is read yet."""
    blocks, before = [], 0
    for part in parts:
        blocks += [(before + start, part[start : start + block]) for start in range(0, len(part), block)]
        before += len(part)
    return blocks


def _rounding_bound(norms: Float64, largest: float, dimension: int) -> Float64:
    """How far (Q,) float32 scores may be from |g|^2 - 2 q.g, for squared norms of queries (Q,) and the largest item's.

    A sum of n products errs by n roundings of the sum of their sizes (Higham, "Accuracy and Stability of Numerical
    Algorithms", 3.1): D for |g|^2, D + 1 for the product, 2 for each centred factor. float64 rounds distances besides.
    """
    terms = dimension + 8
    gamma = terms * _ROUNDING / (1 - terms * _ROUNDING)
    largest *= 1 + gamma  # it was rounded itself
    rounding = 2 * gamma * (largest + np.sqrt(norms * largest))
    return rounding + 4 * terms * (_UNDERFLOW + _ROUNDING_64 * (norms + largest))


def check_size(squared_norm: float) -> None:
    """Refuse embeddings whose squared norm is so large that float32 products of them overflow."""
    if squared_norm > 1e30:  # float32 ends at 3e38, and the product holds sums of these
        raise UserError(f"The embeddings are too large to be compared: a norm is {np.sqrt(squared_norm):.2g}.")
