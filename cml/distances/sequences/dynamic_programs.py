"""The compiled loops over pairs of sequences: each a table of steps by steps, of which two rows are held.

The lower bounds are those of Kim, Park, Chu: An index-based approach for similarity search supporting time warping,
ICDE 2001 (first and last steps), and of Keogh, Ratanamahatana: Exact indexing of dynamic time warping, KAIS 7, 2005,
here for steps of several numbers and for sequences of unequal length: of each step of one, the distance to the box
around all steps of the other that the band lets it meet.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int32, Int64
from cml.distances.compile_loop import ORDERED, compile_loop


@compile_loop(fastmath=frozenset())
def align(a: Float64, b: Float64, band: int, limit: float, is_sum: bool, rows: Float64) -> float:
    """The cost of the best alignment of two sequences (S, F) and (T, F), squared; infinite if it is above ``limit``.

    With ``is_sum`` it is the sum of squared distances along the path (dynamic time warping), else their maximum
    (discrete Frechet). ``rows`` (2, T + 1) is memory.
    """
    s, t = a.shape[0], b.shape[0]
    now, before = 0, 1
    rows[before, : t + 1] = np.inf
    rows[before, 0] = 0.0
    for i in range(s):
        first, last = max(0, i - band), min(t, i + band + 1)
        rows[now, first] = np.inf
        least = np.inf
        for j in range(first, last):
            step = 0.0
            for f in range(a.shape[1]):
                step += (a[i, f] - b[j, f]) ** 2
            best = min(rows[before, j], rows[before, j + 1], rows[now, j])
            cost = best + step if is_sum else max(best, step)
            rows[now, j + 1] = cost
            least = min(least, cost)
        if last < t:
            rows[now, last + 1] = np.inf  # what the next row may look at
        if least > limit:
            return np.inf
        now, before = before, now
    return float(rows[before, t])


@compile_loop(fastmath=frozenset())
def align_all(
    a: Float64,  # (A, S, F)
    a_lengths: Int64,
    b: Float64,  # (B, T, F)
    b_lengths: Int64,
    band: int,
    is_sum: bool,
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place
) -> None:
    """Compute the distances of all pairs."""
    rows = np.empty((2, b.shape[1] + 2))
    for i in range(a.shape[0]):
        for j in range(i if mirror else 0, b.shape[0]):
            cost = align(a[i, : a_lengths[i]], b[j, : b_lengths[j]], band, np.inf, is_sum, rows)
            out[i, j] = np.float32(np.sqrt(cost))
            if mirror:
                out[j, i] = out[i, j]


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


@compile_loop(fastmath=frozenset())
def bound(a: Float64, low: Float64, high: Float64, b: Float64, is_sum: bool) -> float:
    """A lower bound of ``align``: by the ends, and by the boxes (T, F) of ``b``."""
    s, t = a.shape[0], b.shape[0]
    begins, ends, boxes = 0.0, 0.0, 0.0
    for f in range(a.shape[1]):
        begins += (a[0, f] - b[0, f]) ** 2
        ends += (a[s - 1, f] - b[t - 1, f]) ** 2
    for i in range(s):
        step = 0.0
        for f in range(a.shape[1]):
            over = max(a[i, f] - high[i, f], low[i, f] - a[i, f], 0.0)
            step += over * over
        boxes = boxes + step if is_sum else max(boxes, step)
    both = begins + ends if is_sum and (s > 1 or t > 1) else max(begins, ends)
    return max(both, boxes)


@compile_loop(fastmath=frozenset())
def nearest(
    steps: Float64,  # (N, T, F)
    lengths: Int64,
    low: Float64,
    high: Float64,
    start: int,
    stop: int,
    band: int,
    is_sum: bool,
    ids: Int32,  # (R, k), written in place
    distances: Float32,  # (R, k)
) -> None:
    """Find the k nearest of the sequences from ``start`` to ``stop``: by rising bounds, until no nearer one is left."""
    n, k = steps.shape[0], ids.shape[1]
    rows = np.empty((2, steps.shape[1] + 2))
    bounds = np.empty(n)
    for i in range(start, stop):
        a = steps[i, : lengths[i]]
        for j in range(n):
            bounds[j] = np.inf
            if j != i and lengths[i] <= low.shape[1]:
                bounds[j] = bound(a, low[j], high[j], steps[j, : lengths[j]], is_sum)
        order = np.argsort(bounds)
        found = 0
        row_ids, row_distances = ids[i - start], distances[i - start]
        for at in range(n):
            j = order[at]
            if j == i:
                continue
            limit = np.inf
            if found == k:  # float32 of a distance rounds, and so does a bound
                limit = np.float64(row_distances[k - 1]) ** 2 * (1 + 1e-6) + 1e-300
                if bounds[j] > limit:
                    break
            cost = align(a, steps[j, : lengths[j]], band, limit, is_sum, rows)
            value = np.float32(np.sqrt(cost))
            if np.isinf(value):
                continue
            place = found if found < k else k
            while place > 0 and (
                value < row_distances[place - 1] or (value == row_distances[place - 1] and j < row_ids[place - 1])
            ):
                place -= 1
            if place == k:
                continue
            last = found if found < k else k - 1
            for at_place in range(last, place, -1):
                row_ids[at_place], row_distances[at_place] = row_ids[at_place - 1], row_distances[at_place - 1]
            row_ids[place], row_distances[place] = j, value
            found = min(found + 1, k)


@compile_loop(fastmath=frozenset())
def edit_all(
    a: Int64,  # (A, S) numbers of tokens
    a_lengths: Int64,
    b: Int64,  # (B, T)
    b_lengths: Int64,
    insert: float,
    delete: float,
    substitute: float,
    out: Float32,  # (A, B), written in place
) -> None:
    """Compute the edit distances of all pairs."""
    rows = np.empty((2, b.shape[1] + 1))
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            now, before = 0, 1
            for t in range(b_lengths[j] + 1):
                rows[before, t] = t * insert
            for s in range(a_lengths[i]):
                rows[now, 0] = (s + 1) * delete
                for t in range(b_lengths[j]):
                    change = 0.0 if a[i, s] == b[j, t] else substitute
                    rows[now, t + 1] = min(
                        rows[before, t] + change, rows[before, t + 1] + delete, rows[now, t] + insert
                    )
                now, before = before, now
            out[i, j] = np.float32(rows[before, b_lengths[j]])
