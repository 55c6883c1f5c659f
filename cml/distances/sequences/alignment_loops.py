"""The compiled loops over pairs of sequences: each a table of steps by steps, of which one row is held.

Sequences are (F, T), a row for each number of a step, so that a machine compares several steps at once.

The lower bounds are those of Kim, Park, Chu: An index-based approach for similarity search supporting time warping,
ICDE 2001 (first and last steps), and of Keogh, Ratanamahatana: Exact indexing of dynamic time warping, KAIS 7, 2005,
here for steps of several numbers and for sequences of unequal length: of each step of one, the distance to the box
around all steps of the other that the band lets it meet. With open ends, steps that may be left out count nothing.
Cells above the limit are left out as in Herrmann and Webb, Early abandoning and pruning for elastic distances including
dynamic time warping, DMKD 35, 2021.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int32, Int64
from cml.distances.compile_loop import AS_WRITTEN, FREE, compile_loop


@compile_loop(fastmath=AS_WRITTEN)
def _compare_steps(
    a: Float64,  # (F, S)
    i: int,
    b: Float64,  # (F, T)
    first: int,
    last: int,
    costs: Float64,  # (T,), written in place from ``first`` to before ``last``
) -> None:
    """Compute the squared distances of a step to some of another sequence."""
    for f in range(a.shape[0]):
        own = a[f, i]
        for j in range(first, last):
            apart = own - b[f, j]
            costs[j] = apart * apart if f == 0 else costs[j] + apart * apart


@compile_loop(fastmath=AS_WRITTEN)
def _align(
    a: Float64,  # (F, S)
    b: Float64,  # (F, T)
    band: int,
    open_ends: int,
    is_sum: bool,
    row: Float64,  # (T + 1,) memory
    costs: Float64,  # (T,) memory
) -> float:
    """The squared cost of the best alignment of two sequences.

    With ``is_sum`` it is the sum of squared distances along the path (dynamic time warping), else their maximum
    (discrete Frechet).
    """
    s, t, found = a.shape[1], b.shape[1], np.inf
    row[: t + 1] = np.inf
    row[: min(t, open_ends) + 1] = 0.0
    for i in range(s):
        first, last = max(0, i - band), min(t, i + band + 1)
        _compare_steps(a, i, b, first, last, costs)
        corner, left = row[first], 0.0 if first == 0 and i < open_ends else np.inf
        row[first] = left
        for j in range(first, last):
            up = row[j + 1]
            best = corner if corner < up else up
            best = left if left < best else best
            left = best + costs[j] if is_sum else (best if best > costs[j] else costs[j])
            row[j + 1], corner = left, up
        if last == t and i >= s - 1 - open_ends:
            found = min(found, left)
    for j in range(max(s - band, t - open_ends, 1), t + 1):
        found = min(found, row[j])
    return found


@compile_loop(fastmath=AS_WRITTEN)
def _align_within(
    a: Float64,  # (F, S)
    b: Float64,  # (F, T)
    band: int,
    open_ends: int,
    limit: float,
    rest: Float64,  # (S + 1,) lower bounds of what the steps of ``a`` from each one on add
    is_sum: bool,
    row: Float64,  # (T + 1,) memory
    costs: Float64,  # (T,) memory
) -> float:
    """The squared cost of the best alignment of two sequences; infinite if it is above ``limit``.

    Of each row, only the columns from the first to the last that may lie on a path within the limit are held: ``low``
    to ``high``.
    """
    s, t, found = a.shape[1], b.shape[1], np.inf
    low, high = 0, min(t, open_ends)
    row[: high + 1] = 0.0
    for i in range(s):
        allowed = limit - rest[i + 1] if is_sum else limit
        column, last = max(1, low, i + 1 - band), min(t, i + 1 + band)
        left = 0.0 if column == 1 and i < open_ends else np.inf
        corner = row[column - 1] if low < column <= high + 1 else np.inf
        row[column - 1] = left
        above, low = high, -1
        if left <= allowed:
            low = high = column - 1
        reached = min(last, above + 1)
        _compare_steps(a, i, b, column - 1, reached, costs)
        while column <= last and (column <= reached or left <= allowed):
            if column > reached:
                _compare_steps(a, i, b, column - 1, column, costs)
            step, up = costs[column - 1], row[column] if column <= above else np.inf
            best = corner if corner < up else up
            best = left if left < best else best
            left = best + step if is_sum else (best if best > step else step)
            row[column], corner = left, up
            if left <= allowed:
                low, high = column if low < 0 else low, column
            column += 1
        if low < 0:
            return found
        if column > t and i >= s - 1 - open_ends:
            found = min(found, left)
    for column in range(max(low, t - open_ends), high + 1):
        found = min(found, row[column])
    return found


@compile_loop(fastmath=AS_WRITTEN)
def align_all(
    a: Float64,  # (A, F, S)
    a_lengths: Int64,
    b: Float64,  # (B, F, T)
    b_lengths: Int64,
    band: int,
    open_ends: int,
    is_sum: bool,
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place
) -> None:
    """Compute the distances of all pairs."""
    row, costs = np.empty(b.shape[2] + 1), np.empty(b.shape[2])
    for i in range(a.shape[0]):
        for j in range(i if mirror else 0, b.shape[0]):
            own, other = a[i, :, : a_lengths[i]], b[j, :, : b_lengths[j]]
            out[i, j] = np.float32(np.sqrt(_align(own, other, band, open_ends, is_sum, row, costs)))
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


@compile_loop(fastmath=AS_WRITTEN)
def wrap(steps: Float64, lengths: Int64, band: int, low: Float64, high: Float64) -> None:
    """Write the box (N, F, T) around the steps that a step of another sequence may meet in the band.

    Those that may still be the least or the largest wait in a line each (Lemire, Faster retrieval with a two-pass
    dynamic-time-warping lower bound, Pattern Recognition 42, 2009).
    """
    n, width, longest = steps.shape
    least, most = np.empty(longest, np.int64), np.empty(longest, np.int64)
    for i in range(n):
        for f in range(width):
            values = steps[i, f]
            least_first, least_end, most_first, most_end, seen = 0, 0, 0, 0, 0
            for t in range(longest):
                while seen < min(lengths[i], t + band + 1):
                    while least_end > least_first and values[least[least_end - 1]] >= values[seen]:
                        least_end -= 1
                    while most_end > most_first and values[most[most_end - 1]] <= values[seen]:
                        most_end -= 1
                    least[least_end], most[most_end] = seen, seen
                    least_end, most_end, seen = least_end + 1, most_end + 1, seen + 1
                first = min(max(0, t - band), lengths[i] - 1)
                while least[least_first] < first:
                    least_first += 1
                while most[most_first] < first:
                    most_first += 1
                low[i, f, t], high[i, f, t] = values[least[least_first]], values[most[most_first]]


@compile_loop(fastmath=FREE)
def _sum_outside(a: Float64, low: Float64, high: Float64, first: int, last: int) -> float:
    """The squared distances of the steps (F, S) of a sequence to the boxes (F, T) of another, summed up."""
    total = 0.0
    for f in range(a.shape[0]):
        for i in range(first, last):
            above, below = a[f, i] - high[f, i], low[f, i] - a[f, i]
            over = above if above > below else below
            over = over if over > 0.0 else 0.0
            total += over * over
    return total


@compile_loop(fastmath=AS_WRITTEN)
def _bound_rest(
    a: Float64,  # (F, S)
    low: Float64,  # (F, T) the boxes of another sequence
    high: Float64,
    open_ends: int,
    is_sum: bool,
    rest: Float64,  # (S + 1,), written in place
) -> float:
    """Lower bounds of what the steps from each one on add to the squared cost; returns that of all."""
    s = a.shape[1]
    rest[s] = 0.0
    for i in range(s - 1, -1, -1):
        step = 0.0
        if open_ends <= i < s - open_ends:
            for f in range(a.shape[0]):
                over = max(a[f, i] - high[f, i], low[f, i] - a[f, i], 0.0)
                step += over * over
        rest[i] = rest[i + 1] + step if is_sum else max(rest[i + 1], step)
    return float(rest[0])


@compile_loop(fastmath=AS_WRITTEN)
def _bound_ends(a: Float64, b: Float64, is_sum: bool) -> float:
    """A lower bound of the squared cost by the first and last steps of two sequences (F, S) and (F, T)."""
    s, t, begins, ends = a.shape[1], b.shape[1], 0.0, 0.0
    for f in range(a.shape[0]):
        begins += (a[f, 0] - b[f, 0]) ** 2
        ends += (a[f, s - 1] - b[f, t - 1]) ** 2
    return begins + ends if is_sum and (s > 1 or t > 1) else max(begins, ends)


@compile_loop(fastmath=AS_WRITTEN)
def bound_others(
    steps: Float64,  # (N, F, T)
    lengths: Int64,
    low: Float64,
    high: Float64,
    i: int,
    open_ends: int,
    is_sum: bool,
    rest: Float64,  # (T + 1,), room
    bounds: Float64,  # (N,), written in place
) -> None:
    """Bound the squared costs of a sequence and all others from below."""
    a = steps[i, :, : lengths[i]]
    for j in range(steps.shape[0]):
        bounds[j] = 0.0 if open_ends or j == i else _bound_ends(a, steps[j, :, : lengths[j]], is_sum)
        if is_sum and j != i:
            inside = _sum_outside(a, low[j], high[j], open_ends, lengths[i] - open_ends)
        else:
            inside = _bound_rest(a, low[j], high[j], open_ends, is_sum, rest)
        bounds[j] = max(bounds[j], inside)


@compile_loop(fastmath=AS_WRITTEN)
def nearest(
    steps: Float64,  # (N, F, T)
    lengths: Int64,
    low: Float64,
    high: Float64,
    i: int,
    order: Int64,  # (N,) the sequences by rising bounds. Sorted by NumPy: numba compiles a sort for a second
    bounds: Float64,  # (N,) those of ``bound_others``
    band: int,
    open_ends: int,
    is_sum: bool,
    rest: Float64,  # (T + 1,), room
    ids: Int32,  # (k,), written in place
    distances: Float32,  # (k,)
) -> None:
    """Find the k nearest of a sequence: by rising bounds, until no nearer one is left."""
    longest = steps.shape[2]
    row, costs = np.empty(longest + 1), np.empty(longest)
    a, found = steps[i, :, : lengths[i]], 0
    for at in range(order.shape[0]):
        j = order[at]
        if j == i:
            continue
        limit, b = np.inf, steps[j, :, : lengths[j]]
        if found == ids.shape[0]:  # float32 of a distance rounds, and so does a bound
            limit = np.float64(distances[found - 1]) ** 2 * (1 + 1e-6) + 1e-300
            if bounds[j] > limit:
                break
        _bound_rest(a, low[j], high[j], open_ends, is_sum, rest)
        value = np.float32(np.sqrt(_align_within(a, b, band, open_ends, limit, rest, is_sum, row, costs)))
        if not np.isinf(value):
            found = _insert(j, float(value), found, ids, distances)


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
