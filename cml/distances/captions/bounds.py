"""The desk of the caption kernels: one image's tables laid out, and the bounds of its distances to other images.

Each word of a caption moves to its nearest word of the other caption: no cheaper way exists, so that this is a lower
bound of the Word Mover's Distance (RWMD), from either side. A word of another image costs one look into the tables.

References: Kusner et al. 2015, "From Word Embeddings To Document Distances" (RWMD); Atasu and Mittelholzer 2019,
"Linear-Complexity Data-Parallel Earth Mover's Distance Approximations" (one document's tables for many others).
"""

from typing import NamedTuple

import numpy as np

from cml.distances.captions.bags import Bags, Float, Int
from cml.distances.captions.simd import LANES, load, minimum, splat, store
from cml.distances.captions.transport import FAR, make_scratch
from cml.distances.compiled import FREE, compiled


class Sizes(NamedTuple):
    """What scratch memory must hold."""

    words: int  # V
    width: int  # most distinct words of an image that is opened, rounded up to LANES
    lanes: int  # most captions of such an image, rounded up to LANES
    others: int  # most captions of an image that it is compared with
    room: int  # most distinct words of a caption, rounded up to LANES


class Desk(NamedTuple):
    """Scratch memory of one thread: one image is open on it and is compared with others."""

    table: Float  # (V, width) distance of every word to the words of the image
    near: Float  # (V, lanes) distance of every word to the nearest word of each caption of the image
    shares: Float  # (width, lanes) share of a word of the image in each of its captions
    position: Int  # (V,) place of a word in the image's word list, -1 where it has none
    lowest: Float  # (width,)
    lower: Float  # (C', lanes) bounds of the caption pairs by the other image's words
    back: Float  # (C', lanes) by the open image's words
    bounds: Float  # (pairs,) the larger of the two, in the order of the two images' content
    order: Int  # (pairs,) keys of the bounds still to visit
    best: Float  # (C + C',) least distance of each caption so far
    floor: Float  # (C + C',) least bound of each caption
    left: Int  # (width,) mass that a word of the image has left, 0 between pairs
    picks: Int  # (2 * room,) words that the two captions of a pair have left
    reals: Float  # of the solver
    wholes: Int


@compiled(inline=True)
def padded(count: int) -> int:
    """``count``, rounded up to LANES."""
    return (count + LANES - 1) // LANES * LANES


@compiled(inline=True)
def make_desk(sizes: Sizes) -> Desk:
    """Scratch memory for one thread."""
    pairs = padded(sizes.lanes * sizes.others)
    reals, wholes = make_scratch(sizes.room)
    return Desk(
        table=np.empty(sizes.words * sizes.width),
        near=np.empty(sizes.words * sizes.lanes),
        shares=np.empty(sizes.width * sizes.lanes),
        position=np.empty(sizes.words, np.int64),
        lowest=np.empty(sizes.width),
        lower=np.empty(pairs),
        back=np.empty(pairs),
        bounds=np.empty(pairs),
        order=np.empty(pairs, np.int64),
        best=np.empty(sizes.lanes + sizes.others),
        floor=np.empty(sizes.lanes + sizes.others),
        left=np.zeros(sizes.width, np.int64),
        picks=np.empty(2 * sizes.room, np.int64),
        reals=reals,
        wholes=wholes,
    )


@compiled(fastmath=FREE)
def word_distances(a: Float, b: Float, out: Float) -> None:
    """Euclidean distances (V, U) of rows (V, D) and (U, D): the same bits in whatever table, 0 of equal vectors."""
    for i in range(len(a)):
        for j in range(len(b)):
            square = 0.0
            for k in range(a.shape[1]):
                square += (a[i, k] - b[j, k]) * (a[i, k] - b[j, k])
            out[i, j] = np.sqrt(square)


@compiled()
def open_image(desk: Desk, a: Bags, i: int, distances: Float, columns: Int) -> None:
    """Lay image ``i`` on the desk; ``distances`` (V, U) has a word of the image in column ``columns[word]``."""
    table, near, shares, position = desk.table, desk.near, desk.shares, desk.position
    first_word, first = a.lists[i], a.captions[i]
    count = a.lists[i + 1] - first_word
    captions = a.captions[i + 1] - first
    width, lanes = padded(count), padded(captions)
    for word in range(len(distances)):
        position[word] = -1
        for place in range(count):
            table[word * width + place] = distances[word, columns[a.words[first_word + place]]]
        for place in range(count, width):
            table[word * width + place] = 0.0
        for c in range(captions):
            nearest = FAR
            for e in range(a.entries[first + c], a.entries[first + c + 1]):
                nearest = min(nearest, table[word * width + a.places[e]])
            near[word * lanes + c] = nearest
        for c in range(captions, lanes):
            near[word * lanes + c] = 0.0
    for place in range(count):
        position[a.words[first_word + place]] = place
    for at in range(count * lanes):
        shares[at] = 0.0
    for c in range(captions):
        for e in range(a.entries[first + c], a.entries[first + c + 1]):
            shares[a.places[e] * lanes + c] = a.weights[e]


@compiled(inline=True)
def forward(desk: Desk, b: Bags, j: int, lanes: int) -> None:
    """Bounds of the caption pairs by the words of image ``j``, each of which moves to its nearest word."""
    near, lower = desk.near, desk.lower
    first = b.captions[j]
    for c in range(b.captions[j + 1] - first):
        for at in range(0, lanes, LANES):
            total = splat(0.0)
            for e in range(b.entries[first + c], b.entries[first + c + 1]):
                start = b.words[b.lists[j] + b.places[e]] * lanes
                total = total + splat(b.weights[e]) * load(near, start + at)
            store(lower, c * lanes + at, total)


@compiled(inline=True)
def _backward(desk: Desk, b: Bags, j: int, count: int, lanes: int) -> None:
    """The same by the ``count`` words of the open image, which move to words of image ``j``."""
    table, lowest, shares, back = desk.table, desk.lowest, desk.shares, desk.back
    first = b.captions[j]
    width = padded(count)
    for c in range(b.captions[j + 1] - first):
        for place in range(0, width, LANES):
            nearest = splat(FAR)
            for e in range(b.entries[first + c], b.entries[first + c + 1]):
                start = b.words[b.lists[j] + b.places[e]] * width
                nearest = minimum(nearest, load(table, start + place))
            store(lowest, place, nearest)
        for at in range(0, lanes, LANES):
            total = splat(0.0)
            for place in range(count):
                total = total + splat(lowest[place]) * load(shares, place * lanes + at)
            store(back, c * lanes + at, total)


@compiled(inline=True)
def both_sums(values: Float, one: int, two: int) -> float:
    """The sum of the first ``one`` values plus the sum of the ``two`` after them."""
    first = 0.0
    for x in range(one):
        first += values[x]
    second = 0.0
    for y in range(one, one + two):
        second += values[y]
    return first + second


@compiled(inline=True)
def sum_of_minima(lower: Float, own: int, others: int) -> float:
    """The bound of a distance by one side: (others, lanes) bounds, of which ``own`` columns count."""
    lanes = padded(own)
    first = 0.0
    for k in range(own):
        nearest = FAR
        for c in range(others):
            nearest = min(nearest, lower[c * lanes + k])
        first += nearest
    for c in range(others):
        nearest = FAR
        for k in range(own):
            nearest = min(nearest, lower[c * lanes + k])
        first += nearest
    return first


@compiled()
def pair_bounds(desk: Desk, a: Bags, i: int, b: Bags, j: int) -> float:
    """Bounds of all caption pairs of the open image ``i`` and image ``j``; returns the bound of their distance."""
    lower, back, bounds, floor = desk.lower, desk.back, desk.bounds, desk.floor
    own = a.captions[i + 1] - a.captions[i]
    others = b.captions[j + 1] - b.captions[j]
    lanes = padded(own)
    forward(desk, b, j, lanes)
    _backward(desk, b, j, a.lists[i + 1] - a.lists[i], lanes)
    swap = a.ranks[i] > b.ranks[j]
    one, two = (others, own) if swap else (own, others)
    for x in range(one + two):
        floor[x] = FAR
    for x in range(one):
        for y in range(two):
            at = x * lanes + y if swap else y * lanes + x
            bound = max(lower[at], back[at])
            bounds[x * two + y] = bound
            floor[x] = min(floor[x], bound)
            floor[one + y] = min(floor[one + y], bound)
    return both_sums(floor, one, two)
