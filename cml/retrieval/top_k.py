"""The k smallest scores of each query, or its k nearest items, exact in ties; it imports numba: import it late."""

from typing import Any

import numpy as np
from numba import njit

from cml.array_types import Floating, Int64
from cml.errors import UserError

Jit = Any  # an array as numba sees it, of any type of float

_SAMPLED = 16
_CHUNK = 64  # scores that are passed over together
_FREE_ORDER = {"reassoc", "contract"}  # sums in the machine's order, the same for all items
_NO_NAN = {"nnan", "nsz"}


def top_columns(scores: Floating, k: int) -> Int64:
    """Columns of the k smallest scores of each row, smallest first, ties to the lower column.

    A sample of the row says how far the nearest reach, a heap of k entries picks among those: O(G) for the usual row,
    O(G log k) for the worst, no sort of the whole row. Infinite scores are ranked like any other value.
    """
    gallery = scores.shape[1]
    if not 1 <= k <= gallery:
        raise UserError(f"k must be at least 1 and at most the number of gallery items, {gallery}. Got k={k} instead.")
    columns = np.empty((len(scores), k), np.int64)
    _select(np.ascontiguousarray(scores, np.float64), columns)  # one type to compile for
    return columns


@njit(nogil=True, cache=True)
def keep_nearest(
    scores: Jit,  # (R, b) finite scores
    slack: Jit,  # (R,) bound of the rounding of the scores
    query: Jit,  # (R, D) embeddings
    items: Jit,  # (b, D) embeddings of the block
    before: int,
    squared: Jit,  # (R, k) squared distances of the nearest so far, a heap with the farthest in front
    positions: Jit,  # (R, k) their positions; changed in place
) -> None:
    """Let the items of a block into the k nearest of each query, by float64, ties to the lower position."""
    length = scores.shape[1]
    least = np.empty((length + _CHUNK - 1) // _CHUNK, scores.dtype)
    for r in range(len(scores)):
        row, nearest, places = scores[r], squared[r], positions[r]
        _least_of_chunks(row, least)
        # the likeliest chunk first: where the gallery has an order, each item may be nearer than all before it
        first = np.argmin(least)
        limit = np.float32(nearest[0] + slack[r])
        for step in range(-1, len(least)):
            chunk = first if step < 0 else step
            if step == first or least[chunk] > limit:
                continue
            for j in range(chunk * _CHUNK, min(length, (chunk + 1) * _CHUNK)):
                if row[j] <= limit:
                    candidate = _squared_distance(query[r], items[j])
                    if candidate < nearest[0] or (candidate == nearest[0] and before + j < places[0]):
                        _sift_down(nearest, places, len(nearest), candidate, before + j)
                        limit = np.float32(nearest[0] + slack[r])


@njit(nogil=True, cache=True, fastmath=_NO_NAN)
def _least_of_chunks(row: Jit, least: Jit) -> None:
    for chunk in range(len(least)):
        value = row[chunk * _CHUNK]
        for j in range(chunk * _CHUNK, min(len(row), (chunk + 1) * _CHUNK)):
            value = min(value, row[j])
        least[chunk] = value


@njit(nogil=True, cache=True, fastmath=_FREE_ORDER)
def _squared_distance(a: Jit, b: Jit) -> float:
    total = 0.0
    for i in range(len(a)):
        difference = np.float64(a[i]) - np.float64(b[i])
        total += difference * difference
    return total


@njit(nogil=True, cache=True)
def _select(scores: Jit, columns: Jit) -> None:
    gallery, k = scores.shape[1], columns.shape[1]
    stride = k // 8  # the sample's 16 best reach about as far down as the 2k best of the whole row
    prefilter = stride > 2 and gallery // stride >= 4 * _SAMPLED
    heap, sample_heap = np.empty(k, scores.dtype), np.empty(_SAMPLED, scores.dtype)
    sample_places = np.empty(_SAMPLED, np.int64)
    near, near_columns = np.empty(gallery, scores.dtype), np.empty(gallery, np.int64)
    for r in range(len(scores)):
        row, ids = scores[r], columns[r]
        size: Jit = np.int64(0)  # of this type from the start, so that callees are compiled once
        if prefilter:
            sampled = (gallery - 1) // stride + 1
            for i in range(sampled):
                near[i] = row[i * stride]
            _smallest(near, sampled, sample_heap, sample_places)
            limit = sample_heap[0]
            for j in range(gallery):
                if row[j] <= limit:
                    near[size], near_columns[size] = row[j], j
                    size += 1
        if size >= k:
            _smallest(near, size, heap, ids)
        else:  # no sample was taken, or it was unlucky
            _smallest(row, gallery, heap, ids)
        for last in range(k - 1, 0, -1):  # heap sort: the worst goes to the end
            value, place = heap[last], ids[last]
            heap[last], ids[last] = heap[0], ids[0]
            _sift_down(heap, ids, last, value, place)
        if size >= k:
            for i in range(k):
                ids[i] = near_columns[ids[i]]


@njit(nogil=True, cache=True)
def _smallest(values: Jit, size: int, heap: Jit, places: Jit) -> None:
    """Fill ``heap`` with the smallest of the first ``size`` values, the worst at the root, and their places."""
    for j in range(len(heap)):  # sift up; an equal value at a later place is the worse one
        value, child = values[j], j
        while child > 0:
            parent = (child - 1) >> 1
            if heap[parent] > value:
                break
            heap[child], places[child] = heap[parent], places[parent]
            child = parent
        heap[child], places[child] = value, j
    for j in range(len(heap), size):
        if values[j] < heap[0]:
            _sift_down(heap, places, len(heap), values[j], j)


@njit(nogil=True, cache=True)
def _sift_down(heap: Jit, places: Jit, size: int, value: float, place: int) -> None:
    """Put (value, place) where the root is and restore the heap."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            heap[right] > heap[child] or (heap[right] == heap[child] and places[right] > places[child])
        ):
            child = right
        if heap[child] < value or (heap[child] == value and places[child] < place):
            break
        heap[parent], places[parent] = heap[child], places[child]
        parent = child
    heap[parent], places[parent] = value, place
