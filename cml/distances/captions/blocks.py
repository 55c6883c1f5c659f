"""Blocks of caption distances and nearest lists: what the kernels need, shared between threads by row blocks.

A plain loop over POT's solver, 50 to 130 times slower, is the reference of the kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from cml.array_types import Float64, Int32, Int64
from cml.distances.captions.packed_captions import PackedCaptions, collect_words, rank_by_content, unpack_captions
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors, Search

if TYPE_CHECKING:
    from cml.distances.captions.workspace import WorkspaceSizes

TABLE_BYTES = 64 << 20  # of distances between words at a time
_PIECE = 512  # images of a row, or words of a table, that a thread takes at a time
_DIMENSIONS = 32  # vectors are round_up with zeros to a multiple of it: whole vector instructions, several at a time


def caption_distances(
    a: Labels,
    b: Labels,
    vectors_of: Callable[[Int64], Float64],  # returns the vectors (V, D) float64 of word numbers (V,)
    *,
    use_pot: bool,
    threads: int,
) -> Float64:  # (A, B) float64
    """Compute the distances of images by their captions. Equal pairs of images are computed once."""
    if len(a) == 0 or len(b) == 0:
        return np.empty((len(a), len(b)))
    if len(a) > len(b):
        return caption_distances(b, a, vectors_of, use_pot=use_pot, threads=threads).T
    words = collect_words(a, b)
    ranks_a, ranks_b = rank_by_content(a, b)
    packed_a, packed_b = unpack_captions(a, words, ranks_a), unpack_captions(b, words, ranks_b)
    vectors = vectors_of(words)
    source = _first_pairs(ranks_a, ranks_b)
    wanted = np.zeros((len(a), len(b)), bool)
    wanted[source] = True
    out = np.zeros((len(a), len(b)))
    if use_pot:
        for i, j in np.argwhere(wanted):
            # always from the first image by content to the second, so that the order of the two changes no bit
            pair = ((packed_a, i), (packed_b, j)) if ranks_a[i] <= ranks_b[j] else ((packed_b, j), (packed_a, i))
            out[i, j] = plain_distance(*pair[0], *pair[1], vectors)
        return out[source]
    from cml.distances.captions.exact_wmd import fill_row

    sizes = _workspace_sizes(packed_a, packed_b, len(words))
    vectors = _pad_vectors(vectors)
    with ThreadPoolExecutor(threads) as pool:
        for rows in _row_blocks(packed_a, len(words), len(a), TABLE_BYTES):
            table = _word_distance_table(vectors, unpack_captions(a[rows], words, ranks_a[rows]), pool)

            def fill(piece: tuple[int, slice], table: tuple[Float64, Int64] = table) -> None:
                row, columns = piece
                fill_row(packed_a, row, packed_b, columns.start, columns.stop, *table, sizes, wanted, out)

            # Whole rows, as each begins with its own tables; the last ones in pieces, so that the threads end together.
            whole = max(rows.start, rows.stop - 2 * threads) if threads > 1 else rows.stop
            pieces = itertools.product(range(whole, rows.stop), _slices(len(b)))
            list(pool.map(fill, [*((row, slice(0, len(b))) for row in range(rows.start, whole)), *pieces]))
    return out[source]


def nearest_search(
    labels: Labels,
    k: int,
    vectors_of: Callable[[Int64], Float64],  # returns the vectors (V, D) float64 of word numbers (V,)
    *,
    block_bytes: int,
) -> Search:
    """Prepare the search for the exact k nearest of N > k packed images; see ``LabelDistance.searcher``."""
    from cml.distances.captions.nearest_images import find_nearest

    words = collect_words(labels)
    packed = unpack_captions(labels, words, rank_by_content(labels)[0])
    vectors = _pad_vectors(vectors_of(words))
    sizes = _workspace_sizes(packed, packed, len(words))

    def search(start: int, stop: int) -> Neighbors:
        ids = np.empty((stop - start, k), np.int32)
        distances = np.empty((stop - start, k), np.float32)
        part = unpack_captions(labels[start:stop], words, packed.ranks[start:stop])
        for rows in _row_blocks(part, len(words), stop - start, block_bytes):
            few = slice(start + rows.start, start + rows.stop)
            table = _word_distance_table(vectors, unpack_captions(labels[few], words, packed.ranks[few]), None)
            find_nearest(packed, few.start, *table, sizes, ids[rows], distances[rows])
        return Neighbors(ids, distances)

    return search


def _first_pairs(a: Int64, b: Int64) -> tuple[Int32, Int32]:
    """Find for each pair (A, B) of images, by their ranks, the first pair of the same two contents in any order."""
    count = 1 + max(a.max(), b.max())
    first_a, first_b = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    first_a[a[::-1]] = np.arange(len(a), dtype=np.int32)[::-1]
    first_b[b[::-1]] = np.arange(len(b), dtype=np.int32)[::-1]
    row, column = first_a[a][:, None], first_b[b][None, :]
    other_row, other_column = first_a[b][None, :], first_b[a][:, None]
    other = (other_row >= 0) & (other_column >= 0) & (other_row < row)
    return np.where(other, other_row, row), np.where(other, other_column, column)


def _workspace_sizes(a: PackedCaptions, b: PackedCaptions, words: int) -> WorkspaceSizes:
    """Find what the workspaces for these images must hold."""
    from cml.distances.captions.transport import LANES
    from cml.distances.captions.workspace import WorkspaceSizes

    width, lanes, others = (int(np.diff(part).max()) for part in (a.lists, a.captions, b.captions))
    room = int(max(np.diff(a.entries).max(), np.diff(b.entries).max()))
    width, lanes, room = (-(-count // LANES) * LANES for count in (width, lanes, room))
    return WorkspaceSizes(words, width, lanes, others, room)


def _row_blocks(packed: PackedCaptions, words: int, most: int, table_bytes: int) -> Iterator[slice]:
    """Yield up to ``most`` rows at a time, whose words' distances to all ``words`` take up to ``table_bytes``."""
    count = len(packed.ranks)
    room = max(1, table_bytes // (8 * words))  # distinct words
    start = 0
    while start < count:
        stop = int(np.searchsorted(packed.lists, packed.lists[start] + room, side="right")) - 1
        stop = min(max(stop, start + 1), start + most, count)
        yield slice(start, stop)
        start = stop


def _pad_vectors(vectors: Float64) -> Float64:
    """Pad vectors with zeros to a multiple of ``_DIMENSIONS``."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % _DIMENSIONS)))


def _slices(count: int) -> Iterator[slice]:
    """Yield slices that cover all of ``count``, ``_PIECE`` at a time."""
    return (slice(start, min(start + _PIECE, count)) for start in range(0, count, _PIECE))


def _word_distance_table(
    vectors: Float64, packed: PackedCaptions, pool: ThreadPoolExecutor | None
) -> tuple[Float64, Int64]:
    """Compute the distances (V, U) of all words to those of ``packed``, and the column (V,) of each of these."""
    from cml.distances.captions.workspace import word_distances

    own = np.unique(packed.words)
    columns = np.zeros(len(vectors), np.int64)
    columns[own] = np.arange(len(own))
    table = np.empty((len(vectors), len(own)))
    own_vectors = vectors[own]

    def fill(words: slice) -> None:
        word_distances(vectors[words], own_vectors, table[words])

    list((pool.map if pool else map)(fill, _slices(len(vectors))))
    return table, columns


def plain_distance(
    a: PackedCaptions,
    i: int,
    b: PackedCaptions,  # images that hold the second one
    j: int,  # the second image
    vectors: Float64,  # (V, D) vectors of the vocabulary
) -> float:
    """Compute the distance of two images by a plain loop over their captions."""
    costs = [[_caption_pair(*x, *y, vectors) for y in _captions(b, j)] for x in _captions(a, i)]
    return float(np.min(costs, axis=1).sum() + np.min(costs, axis=0).sum())


def _captions(packed: PackedCaptions, image: int) -> Iterator[tuple[Int64, Float64]]:
    """Yield words and weights of each caption of an image."""
    for caption in range(packed.captions[image], packed.captions[image + 1]):
        entries = slice(packed.entries[caption], packed.entries[caption + 1])
        yield packed.words[packed.lists[image] + packed.places[entries]], packed.weights[entries]


def _caption_pair(words: Int64, weights: Float64, others: Int64, other_weights: Float64, vectors: Float64) -> float:
    """Compute the WMD of two captions."""
    if np.array_equal(words, others) and np.array_equal(weights, other_weights):
        return 0.0
    gaps = vectors[words][:, None] - vectors[others][None]
    cost = np.sqrt((gaps * gaps).sum(axis=2))
    import ot

    return max(0.0, float(ot.emd2(weights, other_weights, cost, check_marginals=False, center_dual=False)))
