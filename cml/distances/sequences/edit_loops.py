"""The compiled loops of edit distances: 64 tokens at a time where every edit costs 1, cell by cell otherwise.

The words of 64 tokens are those of Myers, A fast bit-vector algorithm for approximate string matching based on dynamic
programming, JACM 46, 1999, in the form of Hyyro, A bit-vector algorithm for computing Levenshtein and Damerau edit
distances, Nordic Journal of Computing 10, 2003: bits are differences of neighbouring cells of a column of the table.
"""

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop

WORD = 64  # tokens in a word


@compile_loop(fastmath=AS_WRITTEN)
def count_edits(
    a: Int64,  # (A, S) codes of tokens, 0 to C - 1
    a_lengths: Int64,
    b: Int64,  # (B, T)
    b_lengths: Int64,
    codes: int,  # C
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place
) -> None:
    """Compute the edit distances of all pairs where every edit costs 1."""
    one, zero, most = np.uint64(1), np.uint64(0), np.uint64(WORD - 1)
    width = max(1, (a.shape[1] + WORD - 1) // WORD)
    rows = np.zeros(codes, np.int32)  # of ``places``, by code; 0 for those that do not occur
    places = np.zeros((a.shape[1] + 1, width), np.uint64)  # bits of the places of a token
    up, down = np.empty(width, np.uint64), np.empty(width, np.uint64)  # cells above the one before, and below it
    for i in range(a.shape[0]):
        length, used = a_lengths[i], 0
        words = max(1, (length + WORD - 1) // WORD)
        last = one << np.uint64((length - 1) % WORD)
        for s in range(length):
            row = rows[a[i, s]]
            if row == 0:
                used += 1
                row = rows[a[i, s]] = used
                places[row] = zero
            places[row, s // WORD] |= one << np.uint64(s % WORD)
        for j in range(i if mirror else 0, b.shape[0]):
            count = length
            if length == 0:
                count = b_lengths[j]
            else:
                up[:words] = ~zero
                down[:words] = zero
                for t in range(b_lengths[j]):
                    row, add, take = rows[b[j, t]], one, zero  # the differences that come in from the word before
                    for word in range(words):
                        above, below, same = up[word], down[word], places[row, word]
                        equal = same | take
                        across = (((equal & above) + above) ^ above) | equal | below
                        rises, falls = below | ~(across | above), across & above
                        if word == words - 1:
                            if rises & last:
                                count += 1
                            if falls & last:
                                count -= 1
                        next_add, next_take = rises >> most, falls >> most
                        rises, falls = (rises << one) | add, (falls << one) | take
                        add, take = next_add, next_take
                        across |= same
                        up[word], down[word] = falls | ~(across | rises), rises & across
            out[i, j] = np.float32(count)
            if mirror:
                out[j, i] = out[i, j]
        for s in range(length):
            rows[a[i, s]] = 0


@compile_loop(fastmath=AS_WRITTEN)
def weigh_edits(
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
