"""Blocks of caption distances and nearest lists: what the kernels need, shared between threads by row blocks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cml.distances.captions.bags import Bags, Float, Int, ranks, unpack, vocabulary
from cml.distances.label_distance import Neighbors, Search
from cml.distances.labels import Labels

if TYPE_CHECKING:
    from cml.distances.captions.bounds import Sizes

TABLE_BYTES = 64 << 20  # of distances between words at a time
_PIECE = 512  # images of a row, or words of a table, that a thread takes at a time
_DIMENSIONS = 32  # vectors are padded with zeros to a multiple of it: whole vector instructions, several at a time


def distances(
    a: Labels, b: Labels, vectors_of: Callable[[Int], Float], *, relaxed: bool, plain: bool, threads: int
) -> Float:
    """Distances (A, B) of packed captions, of which equal pairs are compared once; ``relaxed``: their lower bounds."""
    # vectors_of gives the vectors (V, D) of word numbers (V,); plain: by POT instead of the kernels
    if len(a) == 0 or len(b) == 0:
        return np.empty((len(a), len(b)))
    if len(a) > len(b):
        return distances(b, a, vectors_of, relaxed=relaxed, plain=plain, threads=threads).T
    words = vocabulary(a, b)
    ranks_a, ranks_b = ranks(a, b)
    bags_a, bags_b = unpack(a, words, ranks_a), unpack(b, words, ranks_b)
    vectors = vectors_of(words)
    source = _first_pairs(ranks_a, ranks_b)
    wanted = np.zeros((len(a), len(b)), bool)
    wanted[source] = True
    out = np.zeros((len(a), len(b)))
    if plain:
        for i, j in np.argwhere(wanted):
            # always from the first image by content to the second, so that the order of the two changes no bit
            pair = ((bags_a, i), (bags_b, j)) if ranks_a[i] <= ranks_b[j] else ((bags_b, j), (bags_a, i))
            out[i, j] = _plain(*pair[0], *pair[1], vectors, relaxed)
        return out[source]
    from cml.distances.captions.kernel import block

    sizes = _sizes(bags_a, bags_b, len(words))
    vectors = _padded(vectors)
    with ThreadPoolExecutor(threads) as pool:
        for rows in _row_blocks(bags_a, len(words), len(a), TABLE_BYTES):
            table = _table(vectors, unpack(a[rows], words, ranks_a[rows]), pool)

            def fill(piece: tuple[int, slice], table: tuple[Float, Int] = table) -> None:
                row, columns = piece
                block(bags_a, row, bags_b, columns.start, columns.stop, *table, sizes, wanted, relaxed, out)

            # Whole rows, as each begins with its own tables; the last ones in pieces, so that the threads end together.
            whole = max(rows.start, rows.stop - 2 * threads) if threads > 1 else rows.stop
            pieces = itertools.product(range(whole, rows.stop), _cut(len(b)))
            list(pool.map(fill, [*((row, slice(0, len(b))) for row in range(rows.start, whole)), *pieces]))
    return out[source]


def nearest_search(labels: Labels, k: int, vectors_of: Callable[[Int], Float], *, block_bytes: int) -> Search:
    """The search for the exact k nearest of N > k packed images, as ``LabelDistance.searcher`` says."""
    from cml.distances.captions.kernel import nearest

    words = vocabulary(labels)
    bags = unpack(labels, words, ranks(labels)[0])
    vectors = _padded(vectors_of(words))
    sizes = _sizes(bags, bags, len(words))

    def search(start: int, stop: int) -> Neighbors:
        ids = np.empty((stop - start, k), np.int32)
        found = np.empty((stop - start, k), np.float32)
        part = unpack(labels[start:stop], words, bags.ranks[start:stop])
        for rows in _row_blocks(part, len(words), stop - start, block_bytes):
            few = slice(start + rows.start, start + rows.stop)
            table = _table(vectors, unpack(labels[few], words, bags.ranks[few]), None)
            nearest(bags, few.start, *table, sizes, ids[rows], found[rows])
        return Neighbors(ids, found)

    return search


def _plain(one: Bags, first: int, two: Bags, second: int, vectors: Float, relaxed: bool) -> float:
    """The distance of two images as a plain loop: the reference for the kernels, 50 to 130 times slower."""
    moved = [[_plain_captions(*x, *y, vectors, relaxed) for y in _captions(two, second)] for x in _captions(one, first)]
    return float(np.min(moved, axis=1).sum() + np.min(moved, axis=0).sum())


def _captions(bags: Bags, image: int) -> Iterator[tuple[Int, Float]]:
    """Words and weights of each caption of an image."""
    for caption in range(bags.captions[image], bags.captions[image + 1]):
        entries = slice(bags.entries[caption], bags.entries[caption + 1])
        yield bags.words[bags.lists[image] + bags.places[entries]], bags.weights[entries]


def _plain_captions(
    words: Int, weights: Float, others: Int, other_weights: Float, vectors: Float, relaxed: bool
) -> float:
    if np.array_equal(words, others) and np.array_equal(weights, other_weights):
        return 0.0
    gaps = vectors[words][:, None] - vectors[others][None]
    cost = np.sqrt((gaps * gaps).sum(axis=2))
    if relaxed:  # each word moves to its nearest word of the other caption
        return float(max((weights * cost.min(axis=1)).sum(), (other_weights * cost.min(axis=0)).sum()))
    import ot

    return max(0.0, float(ot.emd2(weights, other_weights, cost, check_marginals=False, center_dual=False)))


def _first_pairs(a: Int, b: Int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each pair (A, B) of images, of ranks (A,) and (B,), the first of the same two contents in either order."""
    count = 1 + max(a.max(), b.max())
    first_a, first_b = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    first_a[a[::-1]] = np.arange(len(a), dtype=np.int32)[::-1]
    first_b[b[::-1]] = np.arange(len(b), dtype=np.int32)[::-1]
    row, column = first_a[a][:, None], first_b[b][None, :]
    other_row, other_column = first_a[b][None, :], first_b[a][:, None]
    other = (other_row >= 0) & (other_column >= 0) & (other_row < row)
    return np.where(other, other_row, row), np.where(other, other_column, column)


def _sizes(a: Bags, b: Bags, words: int) -> Sizes:
    from cml.distances.captions.bounds import Sizes
    from cml.distances.captions.simd import LANES

    width, lanes, others = (int(np.diff(part).max()) for part in (a.lists, a.captions, b.captions))
    room = int(max(np.diff(a.entries).max(), np.diff(b.entries).max()))
    width, lanes, room = (-(-count // LANES) * LANES for count in (width, lanes, room))
    return Sizes(words, width, lanes, others, room)


def _row_blocks(bags: Bags, words: int, most: int, table_bytes: int) -> Iterator[slice]:
    """Up to ``most`` rows at a time, whose words' distances to all ``words`` take up to ``table_bytes``."""
    count = len(bags.ranks)
    room = max(1, table_bytes // (8 * words))  # distinct words
    start = 0
    while start < count:
        stop = int(np.searchsorted(bags.lists, bags.lists[start] + room, side="right")) - 1
        stop = min(max(stop, start + 1), start + most, count)
        yield slice(start, stop)
        start = stop


def _padded(vectors: Float) -> Float:
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % _DIMENSIONS)))


def _cut(count: int) -> Iterator[slice]:
    """All of ``count``, ``_PIECE`` at a time."""
    return (slice(start, min(start + _PIECE, count)) for start in range(0, count, _PIECE))


def _table(vectors: Float, bags: Bags, pool: ThreadPoolExecutor | None) -> tuple[Float, Int]:
    """Distances (V, U) of all words to those of ``bags``, and the column (V,) of each of these."""
    from cml.distances.captions.bounds import word_distances

    own = np.unique(bags.words)
    columns = np.zeros(len(vectors), np.int64)
    columns[own] = np.arange(len(own))
    table = np.empty((len(vectors), len(own)))
    own_vectors = vectors[own]

    def fill(words: slice) -> None:
        word_distances(vectors[words], own_vectors, table[words])

    list((pool.map if pool else map)(fill, _cut(len(vectors))))
    return table, columns
