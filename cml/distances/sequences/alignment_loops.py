"""The compiled loops over pairs of sequences: each a table of steps by steps, of which two rows are held.

The lower bounds are those of Kim, Park, Chu: An index-based approach for similarity search supporting time warping,
ICDE 2001 (first and last steps), and of Keogh, Ratanamahatana: Exact indexing of dynamic time warping, KAIS 7, 2005,
here for steps of several numbers and for sequences of unequal length: of each step of one, the distance to the box
around all steps of the other that the band lets it meet. With open ends, steps that may be left out count nothing.
Cells above the limit are left out as in Herrmann and Webb, Early abandoning and pruning for elastic distances including
dynamic time warping, DMKD 35, 2021.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int32, Int64
from cml.distances.compile_loop import AS_WRITTEN, ORDERED, compile_loop


@compile_loop(fastmath=AS_WRITTEN)
def _align(
    a: Float64,  # (S, F)
    b: Float64,  # (T, F)
    band: int,
    open_ends: int,
    limit: float,
    rest: Float64,  # (S + 1,) lower bounds of what the steps of ``a`` from each one on add
    is_sum: bool,
    rows: Float64,  # (2, T + 1), memory
) -> float:
    """The squared cost of the best alignment of two sequences; infinite if it is above ``limit``.

    With ``is_sum`` it is the sum of squared distances along the path (dynamic time warping), else their maximum
    (discrete Frechet). Of each row, only the columns from the first to the last that may lie on a path within the limit
    are held: ``low`` to ``high``.
    """
    s, t, found = a.shape[0], b.shape[0], np.inf
    low, high, now, before = 0, min(t, open_ends), 0, 1
    rows[before, : high + 1] = 0.0
    for i in range(s):
        allowed = limit - rest[i + 1] if is_sum else limit
        column, last = max(1, low, i + 1 - band), min(t, i + 1 + band)
        left = 0.0 if column == 1 and i < open_ends else np.inf
        rows[now, column - 1] = left
        corner = rows[before, column - 1] if low < column <= high + 1 else np.inf
        above, low = high, -1
        if left <= allowed:
            low = high = column - 1
        while column <= last and (column <= above + 1 or left <= allowed):
            step = 0.0
            for f in range(a.shape[1]):
                step += (a[i, f] - b[column - 1, f]) ** 2
            up = rows[before, column] if column <= above else np.inf
            best = corner if corner < up else up
            best = left if left < best else best
            left = best + step if is_sum else (best if best > step else step)
            rows[now, column] = left
            corner = up
            if left <= allowed:
                low, high = column if low < 0 else low, column
            column += 1
        if low < 0:
            return found
        if column > t and i >= s - 1 - open_ends:
            found = min(found, left)
        now, before = before, now
    for column in range(max(low, t - open_ends), high + 1):
        found = min(found, rows[before, column])
    return found


@compile_loop(fastmath=AS_WRITTEN)
def align_all(
    a: Float64,  # (A, S, F)
    a_lengths: Int64,
    b: Float64,  # (B, T, F)
    b_lengths: Int64,
    band: int,
    open_ends: int,
    is_sum: bool,
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place
) -> None:
    """Compute the distances of all pairs."""
    rows, rest = np.empty((2, b.shape[1] + 1)), np.zeros(a.shape[1] + 1)
    for i in range(a.shape[0]):
        for j in range(i if mirror else 0, b.shape[0]):
            others = b[j, : b_lengths[j]]
            cost = _align(a[i, : a_lengths[i]], others, band, open_ends, np.inf, rest, is_sum, rows)
            out[i, j] = np.float32(np.sqrt(cost))
            if mirror:
                out[j, i] = out[i, j]


@compile_loop(fastmath=AS_WRITTEN)
def align_apart(
    apart: Float32,  # (S, T1 + T2 + ..): distances of the steps of a sequence to those of B others, one after another
    lengths: Int64,  # (B,)
    band: int,
    open_ends: int,
    is_sum: bool,
    out: Float32,  # (B,), written in place
) -> None:
    """Compute the distances of a sequence to others by those of all their steps."""
    s, start = apart.shape[0], 0
    rows = np.empty((2, lengths.max() + 1))
    for n in range(lengths.shape[0]):
        t, cost = lengths[n], np.inf
        now, before = 0, 1
        rows[before, : t + 1] = np.inf
        rows[before, : min(t, open_ends) + 1] = 0.0
        for i in range(s):
            first, last = max(0, i - band), min(t, i + band + 1)
            rows[now] = np.inf
            rows[now, first] = 0.0 if first == 0 and i < open_ends else np.inf
            for j in range(first, last):
                step = np.float64(apart[i, start + j]) ** 2
                best = min(rows[before, j], rows[before, j + 1], rows[now, j])
                rows[now, j + 1] = best + step if is_sum else max(best, step)
            if i >= s - 1 - open_ends:
                cost = min(cost, rows[now, t])
            now, before = before, now
        for j in range(max(1, t - open_ends), t + 1):
            cost = min(cost, rows[before, j])
        out[n] = np.float32(np.sqrt(cost))
        start += t


@compile_loop(fastmath=ORDERED)
def wrap(steps: Float64, lengths: Int64, band: int, low: Float64, high: Float64) -> None:
    """Write the box (N, T, F) around the steps that a step of another sequence may meet in the band."""
    n, longest, width = steps.shape
    for i in range(n):
        for t in range(longest):
            first, last = max(0, t - band), min(lengths[i], t + band + 1)
            for f in range(width):
                least, most = np.inf, -np.inf
                for j in range(min(first, lengths[i] - 1), max(last, 1)):
                    least, most = min(least, steps[i, j, f]), max(most, steps[i, j, f])
                low[i, t, f], high[i, t, f] = least, most


@compile_loop(fastmath=AS_WRITTEN)
def _bound(
    a: Float64,
    low: Float64,  # (T, F) the boxes of ``b``
    high: Float64,
    b: Float64,
    open_ends: int,
    is_sum: bool,
    rest: Float64,  # (S + 1,), written in place
) -> float:
    """A lower bound of the squared cost, by the ends and by boxes, and those of what the steps from each one on add."""
    s, t = a.shape[0], b.shape[0]
    rest[s] = 0.0
    for i in range(s - 1, -1, -1):
        step = 0.0
        for f in range(a.shape[1]):
            over = max(a[i, f] - high[i, f], low[i, f] - a[i, f], 0.0)
            step += over * over
        if not open_ends <= i < s - open_ends:
            step = 0.0
        rest[i] = rest[i + 1] + step if is_sum else max(rest[i + 1], step)
    if open_ends:
        return float(rest[0])
    begins, ends = 0.0, 0.0
    for f in range(a.shape[1]):
        begins += (a[0, f] - b[0, f]) ** 2
        ends += (a[s - 1, f] - b[t - 1, f]) ** 2
    both = begins + ends if is_sum and (s > 1 or t > 1) else max(begins, ends)
    return float(max(both, rest[0]))


@compile_loop(fastmath=AS_WRITTEN)
def nearest(
    steps: Float64,  # (N, T, F)
    lengths: Int64,
    low: Float64,
    high: Float64,
    start: int,
    stop: int,
    band: int,
    open_ends: int,
    is_sum: bool,
    ids: Int32,  # (R, k), written in place
    distances: Float32,  # (R, k)
) -> None:
    """Find the k nearest of the sequences from ``start`` to ``stop``: by rising bounds, until no nearer one is left."""
    n, longest, _ = steps.shape
    rows, rest, bounds = np.empty((2, longest + 1)), np.empty(longest + 1), np.empty(n)
    for i in range(start, stop):
        a = steps[i, : lengths[i]]
        for j in range(n):
            bounds[j] = np.inf
            if j != i:
                bounds[j] = _bound(a, low[j], high[j], steps[j, : lengths[j]], open_ends, is_sum, rest)
        order = np.argsort(bounds)
        found = 0
        for j in order:
            if j == i:
                continue
            limit, b = np.inf, steps[j, : lengths[j]]
            if found == ids.shape[1]:  # float32 of a distance rounds, and so does a bound
                limit = np.float64(distances[i - start, found - 1]) ** 2 * (1 + 1e-6) + 1e-300
                if bounds[j] > limit:
                    break
            _bound(a, low[j], high[j], b, open_ends, is_sum, rest)
            value = np.float32(np.sqrt(_align(a, b, band, open_ends, limit, rest, is_sum, rows)))
            if not np.isinf(value):
                found = _insert(j, float(value), found, ids[i - start], distances[i - start])


@compile_loop(fastmath=AS_WRITTEN)
def _insert(item: int, value: float, found: int, ids: Int32, distances: Float32) -> int:
    """Insert an item into the list of the nearest, equal ones by number; returns how many there are."""
    k = ids.shape[0]
    place = found
    while place > 0 and (value < distances[place - 1] or (value == distances[place - 1] and item < ids[place - 1])):
        place -= 1
    if place == k:
        return found
    last = found if found < k else k - 1
    for at in range(last, place, -1):
        ids[at], distances[at] = ids[at - 1], distances[at - 1]
    ids[place], distances[place] = item, value
    return found + 1 if found < k else int(k)
