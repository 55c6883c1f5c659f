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
from cml.distances.compile_loop import compile_loop

FAR = 1e30  # stands for infinity, which the kernels are compiled without
LANES = 8  # rows of costs are padded to a multiple of it: loops over whole vectors of the machine, without a rest

# Scratch memory is two arrays, because each array that is handed on costs time. They hold sections of `room` numbers,
# the most rows or columns rounded up to LANES, by these numbers; cost, flow and sources are room times as long.
COST = 4  # reals: costs, row by row (after dual values of columns and rows, path lengths of columns and rows)
SUPPLY, DEMAND = 0, 1  # wholes: mass that a row has still to send, that a column has still to get


@compile_loop(inline=True)
def find_least(values: Float64, start: int, count: int) -> int:
    """Find the first of the smallest of some values, counted from ``start``."""
    least = values[start]
    for at in range(1, count):
        least = min(least, values[start + at])
    at = 0
    while values[start + at] != least:
        at += 1
    return at


@compile_loop()
def make_scratch(
    room: int,  # most rows or columns, a multiple of ``LANES``
) -> tuple[Float64, Int64]:  # ``reals`` ((4 + room) * room,) float64 and ``wholes`` ((11 + 2 * room) * room,) int64
    """Allocate scratch memory for ``solve``."""
    return np.empty((4 + room) * room), np.empty((11 + 2 * room) * room, np.int64)


@compile_loop(inline=True)
def _enter(reals: Float64, wholes: Int64, room: int, stride: int, i: int, depth: float) -> None:
    """Let the search enter row ``i`` at ``depth``: shorten the paths to its columns."""
    depths = 2 * room
    entries = 6 * room
    row = COST * room + i * stride
    base = depth - reals[room + i]
    for at in range(stride):
        path = max(reals[row + at] - reals[at] + base, depth)  # rounding must not lead a path backwards
        if path < reals[depths + at]:
            reals[depths + at] = path
            wholes[entries + at] = i


@compile_loop()
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
    taken = 9 * room  # 1 once the path to a column is final
    columns = 10 * room  # the columns where it is

    # Row reduction, then column reduction: dual values, and arcs of no reduced cost.
    value = 0.0  # of the dual
    left = 0  # mass not sent yet
    for at in range(stride):
        reals[dual + at] = FAR
    for i in range(n):
        row = cost + i * stride
        j = find_least(reals, row, stride)
        low = reals[row + j]
        wholes[row_nearest + i] = j
        reals[row_dual + i] = low
        value += wholes[supply + i] * low
        left += wholes[supply + i]
        for at in range(stride):
            rest = reals[row + at] - low
            if rest < reals[dual + at]:
                reals[dual + at] = rest
                wholes[nearest + at] = i
    for j in range(m):
        value += wholes[demand + j] * reals[dual + j]
        wholes[counts + j] = 0
    for j in range(m, stride):
        reals[dual + j] = 0.0
    if value >= limit:
        return -1.0

    # Send what fits along those arcs.
    for at in range(n * stride):
        wholes[flow + at] = 0
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
        for at in range(stride):
            reals[depths + at] = FAR
            wholes[taken + at] = 0
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
            end = -1
            least = FAR
            for at in range(m):
                if reals[depths + at] < least and wholes[taken + at] == 0:
                    least = reals[depths + at]
                    end = at
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
            wholes[taken + end] = 1
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
