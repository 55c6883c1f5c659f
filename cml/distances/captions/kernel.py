"""Compiled kernels of the caption label distance: exact distances in blocks, exact nearest lists.

The Word Mover's Distance of two captions is the least cost of moving the words of one onto the words of the other.
Of its C x C' caption pairs an image pair needs only each caption's minimum. So every caption pair gets its lower
bound, the pairs are visited in ascending bound, and a pair is solved only until its dual value shows that it is
nobody's minimum. Words that two captions share stay where they are, which is exact because the cost is a metric.

Every function gives the same bits in whatever block, thread and order of the two images it is called: sums run over
a caption's words in ascending order, ties go by the content of the images.

Reference: Kusner et al. 2015, "From Word Embeddings To Document Distances" (WMD, and visiting by ascending bound).
"""

import numpy as np
from numpy.typing import NDArray

from cml.distances.captions.bags import Bags, Float, Int
from cml.distances.captions.bounds import (
    Desk,
    Sizes,
    both_sums,
    forward,
    make_desk,
    open_image,
    padded,
    pair_bounds,
    sum_of_minima,
)
from cml.distances.captions.simd import LANES, keys, least, load, minimum, splat, store
from cml.distances.captions.transport import COST, DEMAND, FAR, SUPPLY, TOP, index_mask, solve
from cml.distances.compiled import compiled
from cml.distances.label_distance import Float32


@compiled(inline=True)
def _caption_pair(
    desk: Desk, a: Bags, i: int, k: int, b: Bags, j: int, c: int, own_rows: bool, room: int, limit: float
) -> float:
    """Word Mover's Distance of caption ``k`` of the open image and caption ``c``, or -1 if it is at least ``limit``."""
    table, position, left = desk.table, desk.position, desk.left
    picks, reals, wholes = desk.picks, desk.reals, desk.wholes
    width = padded(a.lists[i + 1] - a.lists[i])
    own_length, other_length = a.lengths[k], b.lengths[c]
    own_mass, other_mass = (SUPPLY * room, DEMAND * room) if own_rows else (DEMAND * room, SUPPLY * room)
    # Masses in units of 1 / (own_length * other_length): whole numbers. What both captions hold of a word stays.
    for e in range(a.entries[k], a.entries[k + 1]):
        left[a.places[e]] = a.counts[e] * other_length
    others = 0
    for e in range(b.entries[c], b.entries[c + 1]):
        word = b.words[b.lists[j] + b.places[e]]
        mass = b.counts[e] * own_length
        place = position[word]
        if place >= 0:
            shared = min(mass, left[place])
            left[place] -= shared
            mass -= shared
        picks[room + others] = word * width
        wholes[other_mass + others] = mass
        others += 1 if mass > 0 else 0
    own = 0
    for e in range(a.entries[k], a.entries[k + 1]):
        place = a.places[e]
        picks[own] = place
        wholes[own_mass + own] = left[place]
        own += 1 if left[place] > 0 else 0
        left[place] = 0
    if own == 0:
        return 0.0
    # Rows and columns are places (own words) and starts of table rows (the other's): a cost is at their sum.
    n = own if own_rows else others
    m = others if own_rows else own
    row_picks = 0 if own_rows else room
    column_picks = room - row_picks
    stride = padded(m)
    for x in range(n):
        start = COST * room + x * stride
        for y in range(m):
            reals[start + y] = table[picks[row_picks + x] + picks[column_picks + y]]
        for y in range(m, stride):
            reals[start + y] = FAR
    whole = float(own_length * other_length)
    found = solve(reals, wholes, room, int(n), int(m), limit * whole)
    return found / whole if found >= 0.0 else -1.0


@compiled()
def _pair(desk: Desk, a: Bags, i: int, b: Bags, j: int, room: int, abort: float) -> float:
    """The distance of the open image ``i`` and image ``j``, or FAR if it is above ``abort``; after ``_bounds``."""
    lower, back, bounds, order, best, floor = desk.lower, desk.back, desk.bounds, desk.order, desk.best, desk.floor
    own = a.captions[i + 1] - a.captions[i]
    others = b.captions[j + 1] - b.captions[j]
    lanes = padded(own)
    swap = a.ranks[i] > b.ranks[j]
    one, two = (others, own) if swap else (own, others)
    pairs = one * two
    keep = index_mask(pairs)
    for x in range(one + two):
        best[x] = FAR
    for at in range(0, pairs, LANES):
        store(order, at, keys(load(bounds, at), keep, at))
    for at in range(pairs, padded(pairs)):
        order[at] = TOP
    for _ in range(pairs):
        lowest = splat(TOP)
        for at in range(0, pairs, LANES):
            lowest = minimum(lowest, load(order, at))
        at = least(lowest) & ~keep
        order[at] = TOP
        x = at // two
        y = at - x * two
        bound = bounds[at]
        if abort < FAR:
            for z in range(one + two):
                floor[z] = min(best[z], max(floor[z], bound))
            if both_sums(floor, one, two) > abort:
                return FAR
        limit = max(best[x], best[one + y])
        if bound >= limit:
            continue
        k, c = (y, x) if swap else (x, y)
        gap = back[c * lanes + k] - lower[c * lanes + k]
        own_rows = gap > 0.0 or (gap == 0.0 and not swap)  # the side with the larger bound gives the rows
        cost = _caption_pair(desk, a, i, a.captions[i] + k, b, j, b.captions[j] + c, own_rows, room, limit)
        if cost >= 0.0:
            best[x] = min(best[x], cost)
            best[one + y] = min(best[one + y], cost)
    return both_sums(best, one, two)


@compiled()
def block(
    a: Bags,
    i: int,
    b: Bags,
    start: int,
    stop: int,
    distances: Float,
    columns: Int,
    sizes: Sizes,
    wanted: NDArray[np.bool_],
    relaxed: bool,
    out: Float,
) -> None:
    """Write the ``wanted`` distances, or if ``relaxed`` lower bounds, of image ``i`` of ``a`` to some of ``b``."""
    # distances (V, U): of every word to some words; columns (V,): which of these is a word of the image
    desk = make_desk(sizes)
    open_image(desk, a, i, distances, columns)
    for j in range(start, stop):
        if wanted[i, j]:
            bound = pair_bounds(desk, a, i, b, j)
            out[i, j] = bound if relaxed else _pair(desk, a, i, b, j, sizes.room, FAR)


@compiled(inline=True)
def _sift(heap: Int, values: Float, at: int, size: int) -> None:
    """Let the entry at ``at`` sink to its place in a heap of ``size`` entries, least value first."""
    entry = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and values[heap[child + 1]] < values[heap[child]]:
            child += 1
        if values[heap[child]] >= values[entry]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry


@compiled()
def nearest(
    bags: Bags, start: int, distances: Float, columns: Int, sizes: Sizes, ids: NDArray[np.int32], values: Float32
) -> None:
    """The k nearest of the R images from ``start`` on, by (float32 distance, id), into (R, k); see ``block``."""
    desk = make_desk(sizes)
    count, k = len(bags.ranks), ids.shape[1]
    bounds = np.empty(count)
    heap = np.empty(count, np.int64)
    for row in range(len(ids)):
        i = start + row
        open_image(desk, bags, i, distances, columns)
        own = bags.captions[i + 1] - bags.captions[i]
        for j in range(count):
            forward(desk, bags, j, padded(own))
            bounds[j] = sum_of_minima(desk.lower, own, bags.captions[j + 1] - bags.captions[j])
        bounds[i] = FAR
        for at in range(count):
            heap[at] = at
        for at in range(count // 2 - 1, -1, -1):
            _sift(heap, bounds, at, count)
        found = 0
        reach = FAR  # no image above it can be among the k nearest
        for size in range(count, 0, -1):
            j = heap[0]  # the image of the least bound left
            if bounds[j] > reach or j == i:  # the image itself is the last of all
                break
            heap[0] = heap[size - 1]
            _sift(heap, bounds, 0, size - 1)
            if pair_bounds(desk, bags, i, bags, j) > reach:
                continue
            distance = _pair(desk, bags, i, bags, j, sizes.room, reach)
            if distance >= FAR:
                continue
            value = np.float32(distance)
            at = found
            while at > 0 and (values[row, at - 1] > value or (values[row, at - 1] == value and ids[row, at - 1] > j)):
                at -= 1
            if at == k:
                continue
            found = min(found + 1, k)
            for z in range(found - 1, at, -1):
                values[row, z] = values[row, z - 1]
                ids[row, z] = ids[row, z - 1]
            values[row, at] = value
            ids[row, at] = j
            if found == k:  # a distance that rounds to the k-th best value may still win by its lower id
                reach = np.float64(values[row, k - 1]) * (1.0 + 2.0**-22)
