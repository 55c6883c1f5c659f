"""Exact caption distances of one image to others, compiled.

The Word Mover's Distance of two captions is the least cost of moving the words of one onto the words of the other.
Of its C x C' caption pairs an image pair needs only each caption's minimum. So every caption pair gets its lower
bound, the pairs are visited in ascending bound, and a pair is solved only until its dual value shows that it is
nobody's minimum. Words that two captions share stay where they are, which is exact because the cost is a metric.

Every function gives the same bits in whatever block, thread and order of the two images it is called: sums run over
a caption's words in ascending order, ties go by the content of the images.

Reference: Kusner et al. 2015, "From Word Embeddings To Document Distances" (WMD, and visiting by ascending bound).
"""

from cml.array_types import Bools, Float64, Int64
from cml.distances.captions.packed_captions import PackedCaptions
from cml.distances.captions.transport import COST, DEMAND, FAR, SUPPLY, find_least, solve
from cml.distances.captions.wmd_lower_bound import both_sums, pair_bounds
from cml.distances.captions.workspace import Workspace, WorkspaceSizes, make_workspace, open_image, round_up
from cml.distances.compile_loop import compile_loop


@compile_loop(inline=True)
def _caption_pair(
    workspace: Workspace,
    a: PackedCaptions,
    i: int,
    k: int,
    b: PackedCaptions,
    j: int,
    c: int,
    own_rows: bool,
    room: int,
    limit: float,
) -> float:
    """Compute the WMD of caption ``k`` of the open image and caption ``c``, or -1 if it is at least ``limit``."""
    table, position, left = workspace.table, workspace.position, workspace.left
    picks, reals, wholes = workspace.picks, workspace.reals, workspace.wholes
    width = round_up(a.lists[i + 1] - a.lists[i])
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
    stride = round_up(m)
    for x in range(n):
        start = COST * room + x * stride
        for y in range(m):
            reals[start + y] = table[picks[row_picks + x] + picks[column_picks + y]]
        for y in range(m, stride):
            reals[start + y] = FAR
    whole = float(own_length * other_length)
    total = solve(reals, wholes, room, int(n), int(m), limit * whole)
    return total / whole if total >= 0.0 else -1.0


@compile_loop()
def pair_distance(
    workspace: Workspace,  # the workspace in which image ``i`` is open
    a: PackedCaptions,
    i: int,
    b: PackedCaptions,
    j: int,
    room: int,
    abort: float,
) -> float:  # the distance, or ``FAR`` if it is above ``abort``
    """Compute the distance of two images, once ``pair_bounds`` has left its bounds in the workspace."""
    lower, back, bounds = workspace.lower, workspace.back, workspace.bounds
    order, best, floor = workspace.order, workspace.best, workspace.floor
    own = a.captions[i + 1] - a.captions[i]
    others = b.captions[j + 1] - b.captions[j]
    lanes = round_up(own)
    swap = a.ranks[i] > b.ranks[j]
    rows, columns = (others, own) if swap else (own, others)
    pairs = rows * columns
    for x in range(rows + columns):
        best[x] = FAR
    for at in range(pairs):
        order[at] = bounds[at]
    for _ in range(pairs):
        at = find_least(order, 0, pairs)
        order[at] = FAR
        x = at // columns
        y = at - x * columns
        bound = bounds[at]
        if abort < FAR:
            for z in range(rows + columns):
                floor[z] = min(best[z], max(floor[z], bound))
            if both_sums(floor, rows, columns) > abort:
                return FAR
        limit = max(best[x], best[rows + y])
        if bound >= limit:
            continue
        k, c = (y, x) if swap else (x, y)
        gap = back[c * lanes + k] - lower[c * lanes + k]
        own_rows = gap > 0.0 or (gap == 0.0 and not swap)  # the side with the larger bound gives the rows
        cost = _caption_pair(workspace, a, i, a.captions[i] + k, b, j, b.captions[j] + c, own_rows, room, limit)
        if cost >= 0.0:
            best[x] = min(best[x], cost)
            best[rows + y] = min(best[rows + y], cost)
    return both_sums(best, rows, columns)


@compile_loop()
def fill_row(
    a: PackedCaptions,
    i: int,
    b: PackedCaptions,
    start: int,
    stop: int,
    distances: Float64,  # (V, U) distances of every word to some words
    columns: Int64,  # (V,) which of these U words a word of image ``i`` is
    sizes: WorkspaceSizes,
    wanted: Bools,  # (A, B) which distances to write; the rest is left as it is
    out: Float64,  # (A, B), written in place
) -> None:
    """Write distances of one image to others."""
    workspace = make_workspace(sizes)
    open_image(workspace, a, i, distances, columns)
    for j in range(start, stop):
        if wanted[i, j]:
            pair_bounds(workspace, a, i, b, j)
            out[i, j] = pair_distance(workspace, a, i, b, j, sizes.room, FAR)
