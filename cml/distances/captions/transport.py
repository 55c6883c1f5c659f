"""An exact solver for small optimal-transport problems with whole-number masses, compiled.

Shortest augmenting paths: reduce rows and columns, send what fits along arcs of no reduced cost, then search from all
rows that still hold mass at once, until none does. Masses are integers, so flows are exact and no tolerance is needed.
The dual value only grows and never passes the optimum: a caller who needs no value above a limit has its answer as
soon as the dual reaches it.

References: Ford and Fulkerson 1962, "Flows in Networks", ch. III (primal-dual transport); Jonker and Volgenant 1987,
"A shortest augmenting path algorithm for dense and sparse linear assignment problems" (reductions, then paths).
"""

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.captions.simd import LANES, keys, least, load, minimum, splat, store, where
from cml.distances.compiled import compiled

FAR = 1e30  # stands for infinity, which the kernels are compiled without
TOP = np.int64(0x7FFFFFFFFFFFFFFF)  # above every key
TAKEN = np.int64(0x7000000000000000)  # or-ed into a key, it makes it larger than that of any distance

# Scratch memory is two arrays, because each array that is handed on costs time. They hold sections of `room` numbers,
# the most rows or columns rounded up to LANES, by these numbers; cost, flow and sources are room times as long.
COST = 4  # reals: costs, row by row (after dual values of columns and rows, path lengths of columns and rows)
SUPPLY, DEMAND = 0, 1  # wholes: mass that a row has still to send, that a column has still to get


@compiled(inline=True)
def index_mask(
    count: int,  # the indices are 0 .. count - 1
) -> int:
    """Find the bits of a distance that stay in a key when an index has to fit into the others."""
    low = 1
    while low < count:
        low *= 2
    return ~(low - 1)


@compiled()
def make_scratch(
    room: int,  # most rows or columns, a multiple of ``LANES``
) -> tuple[Float64, Int64]:  # ``reals`` ((4 + room) * room,) float64 and ``wholes`` ((11 + 2 * room) * room,) int64
    """Allocate scratch memory for ``solve``."""
    return np.empty((4 + room) * room), np.empty((11 + 2 * room) * room, np.int64)


@compiled(inline=True)
def _enter(reals: Float64, wholes: Int64, room: int, stride: int, i: int, depth: float) -> None:
    """Let the search enter row ``i`` at ``depth``: shorten the paths to its columns."""
    depths = 2 * room
    entries = 6 * room
    row = COST * room + i * stride
    base = splat(depth - reals[room + i])
    for at in range(0, stride, LANES):
        path = load(reals, row + at) - load(reals, at) + base
        path = where(path < splat(depth), splat(depth), path)  # rounding must not lead a path backwards
        less = path < load(reals, depths + at)
        store(wholes, entries + at, where(less, splat(i), load(wholes, entries + at)))
        store(reals, depths + at, minimum(path, load(reals, depths + at)))


@compiled()
def solve(
    # scratch memory, which holds from ``COST * room`` on the (n, stride) costs >= 0, where stride is m rounded up to
    # ``LANES`` and the padding is ``FAR``
    reals: Float64,
    # scratch memory, which holds from ``SUPPLY * room`` on the n masses of the rows and from ``DEMAND * room`` on the m
    # masses of the columns, all above 0 and of equal sums. They are used up
    wholes: Int64,
    room: int,
    n: int,
    m: int,
    limit: float,
) -> float:  # the least total cost, or -1 if it is ``limit`` or more
    """Solve a transport problem of n rows and m columns exactly, unless its least cost reaches a limit.

    One function, because a call costs more than most of its loops.
    """
    stride = (m + LANES - 1) // LANES * LANES
    keep = index_mask(stride)
    dual = 0  # where the sections of reals start: dual values of the columns,
    row_dual = room  # of the rows,
    depths = 2 * room  # lengths of the shortest paths to the columns so far,
    row_depth = 3 * room  # to the rows
    cost = COST * room
    supply = SUPPLY * room  # where the sections of wholes start
    demand = DEMAND * room
    counts = 2 * room  # rows that send into a column: how many,
    sources = (11 + room) * room  # and which, n places a column
    flow = 11 * room  # (n, stride)
    row_nearest = 3 * room  # column of a row's least cost
    nearest = 4 * room  # row of a column's least reduced cost
    row_entry = 5 * room  # the column by which the shortest path enters a row, -1 where it starts
    entries = 6 * room  # the last row of the shortest path to a column
    row_seen = 7 * room  # 1 once the search has been in a row
    rows = 8 * room  # the rows where it has been
    taken = 9 * room  # TAKEN once the path to a column is final
    columns = 10 * room  # the columns where it is

    # Row reduction, then column reduction: dual values, and arcs of no reduced cost.
    value = 0.0  # of the dual
    left = 0  # mass not sent yet
    for at in range(0, stride, LANES):
        store(reals, dual + at, splat(FAR))
    for i in range(n):
        row = cost + i * stride
        best = splat(TOP)
        for at in range(0, stride, LANES):
            best = minimum(best, keys(load(reals, row + at), keep, at))
        j = least(best) & ~keep
        low = reals[row + j]
        wholes[row_nearest + i] = j
        reals[row_dual + i] = low
        value += wholes[supply + i] * low
        left += wholes[supply + i]
        for at in range(0, stride, LANES):
            rest = load(reals, row + at) - splat(low)
            less = rest < load(reals, dual + at)
            store(wholes, nearest + at, where(less, splat(i), load(wholes, nearest + at)))
            store(reals, dual + at, minimum(rest, load(reals, dual + at)))
    for j in range(m):
        value += wholes[demand + j] * reals[dual + j]
        wholes[counts + j] = 0
    for j in range(m, stride):
        reals[dual + j] = 0.0
    if value >= limit:
        return -1.0

    # Send what fits along those arcs.
    for at in range(0, n * stride, LANES):
        store(wholes, flow + at, splat(0))
    for arc in range(n + m):
        i = arc if arc < n else wholes[nearest + arc - n]
        j = wholes[row_nearest + i] if arc < n else arc - n
        mass = min(wholes[supply + i], wholes[demand + j])
        if mass > 0:
            if wholes[flow + i * stride + j] == 0:
                wholes[sources + j * n + wholes[counts + j]] = i
                wholes[counts + j] += 1
            wholes[flow + i * stride + j] += mass
            wholes[supply + i] -= mass
            wholes[demand + j] -= mass
            left -= mass

    # Shortest paths from all rows that still hold mass, until none does.
    while left > 0:
        row_count = 0
        column_count = 0
        for at in range(0, stride, LANES):
            store(reals, depths + at, splat(FAR))
            store(wholes, taken + at, splat(0))
        for i in range(n):
            wholes[row_seen + i] = 0
            if wholes[supply + i] > 0:
                wholes[row_seen + i] = 1
                reals[row_depth + i] = 0.0
                wholes[row_entry + i] = -1
                wholes[rows + row_count] = i
                row_count += 1
                _enter(reals, wholes, room, stride, i, 0.0)
        depth = 0.0
        while True:
            best = splat(TOP)
            for at in range(0, stride, LANES):
                best = minimum(best, keys(load(reals, depths + at), keep, at) | load(wholes, taken + at))
            end = least(best) & ~keep
            value += left * (reals[depths + end] - depth)
            depth = reals[depths + end]
            if value >= limit:
                return -1.0
            if wholes[demand + end] > 0:
                i = wholes[entries + end]
                mass = wholes[demand + end]
                j = wholes[row_entry + i]
                while j >= 0:
                    mass = min(mass, wholes[flow + i * stride + j])
                    i = wholes[entries + j]
                    j = wholes[row_entry + i]
                mass = min(mass, wholes[supply + i])
                wholes[supply + i] -= mass
                wholes[demand + end] -= mass
                left -= mass
                cut = wholes[supply + i] == 0 or wholes[demand + end] > 0  # the search tree does not fit any more
                i = wholes[entries + end]
                j = end
                while True:
                    if wholes[flow + i * stride + j] == 0:
                        wholes[sources + j * n + wholes[counts + j]] = i
                        wholes[counts + j] += 1
                    wholes[flow + i * stride + j] += mass
                    j = wholes[row_entry + i]
                    if j < 0:
                        break
                    wholes[flow + i * stride + j] -= mass
                    if wholes[flow + i * stride + j] == 0:
                        cut = True
                        wholes[counts + j] -= 1
                        k = sources + j * n
                        while wholes[k] != i:
                            k += 1
                        wholes[k] = wholes[sources + j * n + wholes[counts + j]]
                    i = wholes[entries + j]
                if cut:
                    break
            wholes[taken + end] = TAKEN
            wholes[columns + column_count] = end
            column_count += 1
            for k in range(wholes[counts + end]):
                i = wholes[sources + end * n + k]
                if wholes[row_seen + i] == 0:
                    wholes[row_seen + i] = 1
                    reals[row_depth + i] = depth
                    wholes[row_entry + i] = end
                    wholes[rows + row_count] = i
                    row_count += 1
                    _enter(reals, wholes, room, stride, i, depth)
        for k in range(row_count):
            i = wholes[rows + k]
            reals[row_dual + i] += depth - reals[row_depth + i]
        for k in range(column_count):
            j = wholes[columns + k]
            reals[dual + j] -= depth - reals[depths + j]

    value = 0.0
    for j in range(m):
        for k in range(wholes[counts + j]):
            i = wholes[sources + j * n + k]
            value += wholes[flow + i * stride + j] * reals[cost + i * stride + j]
    return value
