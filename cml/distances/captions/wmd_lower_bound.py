"""Lower bounds of the Word Mover's Distance (the relaxed WMD, RWMD), compiled: of caption pairs and of images.

Each word of a caption moves to its nearest word of the other caption, whatever room there is. No cheaper way exists, so
that this bounds the distance from below, from either side. A word of another image costs one look into the tables of
the workspace.

References: Kusner et al., "From Word Embeddings To Document Distances", ICML 2015 (RWMD); Atasu and Mittelholzer,
"Linear-Complexity Data-Parallel Earth Mover's Distance Approximations", ICML 2019 (one document's tables for many).
"""

from cml.array_types import Float64
from cml.distances.captions.packed_captions import PackedCaptions
from cml.distances.captions.transport import FAR
from cml.distances.captions.workspace import Workspace, round_up
from cml.distances.compile_loop import compile_loop


@compile_loop(inline=True)
def forward_bounds(
    workspace: Workspace,  # the workspace of the open image; its ``lower`` is written
    b: PackedCaptions,
    j: int,
    lanes: int,  # captions of the open image, rounded up to ``LANES``
) -> None:
    """Bound all caption pairs by the words of the other image, each of which moves to its nearest word."""
    near, lower = workspace.near, workspace.lower
    first = b.captions[j]
    for c in range(b.captions[j + 1] - first):
        for at in range(lanes):
            lower[c * lanes + at] = 0.0
        for e in range(b.entries[first + c], b.entries[first + c + 1]):
            start = b.words[b.lists[j] + b.places[e]] * lanes
            for at in range(lanes):
                lower[c * lanes + at] += b.weights[e] * near[start + at]


@compile_loop(inline=True)
def _backward_bounds(workspace: Workspace, b: PackedCaptions, j: int, count: int, lanes: int) -> None:
    """Bound all caption pairs by the ``count`` words of the open image, which move to words of image ``j``."""
    table, lowest, shares, back = workspace.table, workspace.lowest, workspace.shares, workspace.back
    first = b.captions[j]
    width = round_up(count)
    for c in range(b.captions[j + 1] - first):
        for place in range(width):
            lowest[place] = FAR
        for e in range(b.entries[first + c], b.entries[first + c + 1]):
            start = b.words[b.lists[j] + b.places[e]] * width
            for place in range(width):
                lowest[place] = min(lowest[place], table[start + place])
        for at in range(lanes):
            back[c * lanes + at] = 0.0
        for place in range(count):
            for at in range(lanes):
                back[c * lanes + at] += lowest[place] * shares[place * lanes + at]


@compile_loop(inline=True)
def both_sums(values: Float64, rows: int, columns: int) -> float:
    """Add up the first values, then those after them, then both sums."""
    first = 0.0
    for x in range(rows):
        first += values[x]
    second = 0.0
    for y in range(rows, rows + columns):
        second += values[y]
    return first + second


@compile_loop(inline=True)
def sum_of_minima(
    lower: Float64,  # (others, lanes) bounds, row by row, of which the first ``own`` of each row count
    own: int,
    others: int,
) -> float:
    """Bound the distance of two images by bounds of their caption pairs from one side."""
    lanes = round_up(own)
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


@compile_loop()
def pair_bounds(
    # the workspace in which image ``i`` is open; its ``lower``, ``back``, ``bounds`` and ``floor`` are written
    workspace: Workspace,
    a: PackedCaptions,
    i: int,
    b: PackedCaptions,
    j: int,
) -> float:
    """Bound all caption pairs of two images from both sides."""
    lower, back, bounds, floor = workspace.lower, workspace.back, workspace.bounds, workspace.floor
    own = a.captions[i + 1] - a.captions[i]
    others = b.captions[j + 1] - b.captions[j]
    lanes = round_up(own)
    forward_bounds(workspace, b, j, lanes)
    _backward_bounds(workspace, b, j, a.lists[i + 1] - a.lists[i], lanes)
    swap = a.ranks[i] > b.ranks[j]
    rows, columns = (others, own) if swap else (own, others)
    for x in range(rows + columns):
        floor[x] = FAR
    for x in range(rows):
        for y in range(columns):
            at = x * lanes + y if swap else y * lanes + x
            bound = max(lower[at], back[at])
            bounds[x * columns + y] = bound
            floor[x] = min(floor[x], bound)
            floor[rows + y] = min(floor[rows + y], bound)
    return both_sums(floor, rows, columns)
