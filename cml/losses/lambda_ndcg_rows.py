"""The compiled loop of ``lambda_ndcg.py``: value and slopes of each row, in O(B log B) steps.

Of two items, i above j in the order of scores, let u = x_i - x_j in units of the temperature, and t = exp(-u) <= 1. The
softplus is log(1 + t) if i has more gain, and log(1 + t) + u if it has less. Pairs in one block of ``BLOCK`` items are
summed one by one. Pairs across blocks are summed by halves of the ranking (``lambda_ndcg_halves.py``) as if the
softplus were log(1 + t) + u / 2 for both. With its weight, the difference is a sum of products.
"""

import math
from typing import Any

import numpy as np

from cml.array_types import Float64, Floating, Int64
from cml.distances.compile_loop import FREE, compile_loop
from cml.losses.lambda_ndcg_halves import DOUBLE, SINGLE, WIDE, add_halves, expand, log_ratio

BLOCK = 64
_NARROW = 80.0  # a range of scores whose powers float32 holds, from exp(-40) to exp(40)
_SHORT, _LONG = expand(log_ratio, 8).astype(np.float32), expand(log_ratio, 16)  # relative errors 2e-7, 1e-13


def sum_lambda_ndcg(
    squared: Floating,  # (R, B) squared distances of embeddings; a score is -1/2 of one
    by_distance: Int64,  # (R, B) the columns by ascending squared distance, those that are not used last
    labels: Floating,  # (R, B) label distances, of which the order is enough
    by_label: Int64,  # (R, B) the columns by ascending label distance, those that are not used last
    gains: Floating,  # (R, B)
    used: Int64,  # (R,) the number of used columns
    temperature: float,  # divides differences of scores
    values: Float64,  # (R,) filled with the sum over pairs
    slopes: Floating,  # (R, B) of zeros, filled with the derivatives of the values in the squared distances
) -> None:
    """Fill ``values`` and ``slopes`` for R rows of B columns."""
    is_single = squared.dtype == np.float32
    factors, logs, more_logs = (SINGLE, _SHORT, None) if is_single else (DOUBLE, _LONG[:8], _LONG[8:])
    constants = squared.dtype.type(0), squared.dtype.type(1)
    _sum_rows(
        squared, by_distance, by_label, gains, used, temperature, values, slopes, factors, logs, more_logs, constants
    )


@compile_loop(fastmath=FREE)
def _sum_rows(
    squared: Floating,  # as above, until ``slopes``
    by_distance: Int64,
    by_label: Int64,
    gains: Floating,
    used: Int64,
    temperature: float,
    values: Float64,
    slopes: Floating,
    factors: Float64,  # see ``lambda_ndcg_halves.py``
    logs: Floating,  # (8,) those of log(1 + t) / t in powers of t
    more_logs: Floating | None,  # (8,) those of the powers from 8 on; numba compiles no branch for None
    constants: tuple[np.floating[Any], np.floating[Any]],  # 0 and 1
) -> None:
    columns = squared.shape[1]
    rows, seen = np.empty(columns * (len(factors) // 2)), np.empty(4 * len(factors))
    discount, score, gain, slope = np.empty(columns), np.empty(columns), np.empty(columns), np.empty(columns)
    power, inverse = np.empty(columns), np.empty(columns)
    place, order, ordered = np.empty(columns, np.int64), np.empty(columns, np.int64), np.empty(columns, np.int64)
    block = np.empty((5, BLOCK), squared.dtype)
    for q in range(columns):
        discount[q] = 1 / np.log2(q + 2.0)
    for row in range(len(squared)):
        n = used[row]
        if n == 0:
            values[row] = 0.0
            continue
        ideal = 0.0
        for q in range(n):
            column = by_distance[row, q]
            score[q] = squared[row, column] * (-0.5 / temperature)
            gain[q] = gains[row, column]
            place[column] = q
            ideal += gains[row, by_label[row, q]] * discount[q]
        for q in range(n):
            order[n - 1 - q] = place[by_label[row, q]]
        center = 0.5 * (score[0] + score[n - 1])
        wide = not score[0] - score[n - 1] <= WIDE
        if not wide:
            for q in range(n):
                power[q] = math.exp(score[q] - center)
                inverse[q] = 1 / power[q]
        slope[:n] = 0
        value = _add_linear(score, gain, discount, slope, 0, n, 1.0)
        blocks = (n + BLOCK - 1) // BLOCK
        level = 0
        while 1 << level < blocks:
            for part in range(1 << level):
                start = (blocks * part >> level) * BLOCK
                stop = min(n, (blocks * (part + 1) >> level) * BLOCK)
                middle = (blocks * (2 * part + 1) >> level + 1) * BLOCK
                if start < middle < stop:
                    value += add_halves(
                        score[start:stop],
                        power[start:stop],
                        inverse[start:stop],
                        wide,
                        gain[start:stop],
                        discount[start:stop],
                        order[start:stop],
                        middle - start,
                        factors,
                        rows,
                        seen,
                        slope[start:stop],
                    )
                # the order within each half
                upper, lower, size = start, middle, middle - start
                for p in range(start, stop):
                    q = order[p]
                    is_lower = np.int64(q >= size)
                    at = upper + is_lower * (lower - upper)
                    ordered[at] = q - size * is_lower
                    upper, lower = upper + 1 - is_lower, lower + is_lower
            order, ordered = ordered, order
            level += 1
        for start in range(0, n, BLOCK):
            stop = min(n, start + BLOCK)
            value += _add_linear(score, gain, discount, slope, start, stop, -1.0)
            value += _add_block(
                score[start:stop],
                gain[start:stop],
                discount[start:stop],
                block,
                slope[start:stop],
                logs,
                more_logs,
                constants,
            )
        values[row] = value / ideal
        for q in range(n):
            slopes[row, by_distance[row, q]] = slope[q] * (-0.5 / temperature / ideal)


@compile_loop(fastmath=FREE)
def _add_linear(
    score: Float64, gain: Float64, discount: Float64, slope: Float64, start: int, stop: int, sign: float
) -> float:
    """Sum (g_j - g_i) (d_i - d_j) (x_i - x_j) / 2, times a sign, of items i above j, and add its slopes."""
    gains, discounts, both = 0.0, 0.0, 0.0
    for q in range(start, stop):
        gains += gain[q]
        discounts += discount[q]
        both += gain[q] * discount[q]
    above, of_gains, of_discounts, of_both, value = 0.0, 0.0, 0.0, 0.0, 0.0
    for q in range(start, stop):
        g, d = gain[q], discount[q]
        in_all = g * d * (stop - start) - g * discounts - d * gains + both  # (g - g_k) (d - d_k) over all items k
        in_above = g * d * above - g * of_discounts - d * of_gains + of_both
        pull = sign * (in_above - 0.5 * in_all)
        slope[q] += pull
        value += pull * score[q]
        above, of_gains, of_discounts, of_both = above + 1, of_gains + g, of_discounts + d, of_both + g * d
    return value


@compile_loop(fastmath=FREE)
def _add_block(
    score: Float64,
    gain: Float64,
    discount: Float64,
    block: Floating,
    slope: Float64,
    logs: Floating,
    more_logs: Floating | None,
    constants: tuple[np.floating[Any], np.floating[Any]],
) -> float:
    """Sum the pairs of a block, and add their slopes.

    Every pair is visited from both ends. ``block`` is (5, BLOCK), to be overwritten.
    """
    n = len(score)
    x, g, d, power, inverse, one = block[0], block[1], block[2], block[3], block[4], constants[1]
    center = score[n // 2]
    for q in range(n):
        x[q] = score[q] - center
        g[q], d[q] = gain[q], discount[q] - discount[n // 2]
    wide = not x[0] - x[n - 1] <= _NARROW
    value = 0.0
    for q in range(n):
        if wide or q == 0:  # every item has powers of its own if no number holds those of all
            origin = x[q] if wide else 0.5 * (x[0] + x[n - 1])
            for j in range(n):
                y = min(max(x[j] - origin, -_NARROW), _NARROW)
                power[j] = math.exp(y)
                inverse[j] = one / power[j]
        value += _see_others(block, n, logs, more_logs, constants, slope, q, q + 1 if wide else n)
        if not wide:
            break
    return 0.5 * value


@compile_loop(fastmath=FREE)
def _see_others(
    block: Floating,  # (5, BLOCK) scores and discounts less a number, gains, and the powers exp(x) and exp(-x)
    n: int,  # The number of items
    logs: Floating,  # see ``_sum_rows``
    more_logs: Floating | None,  # see ``_sum_rows``
    constants: tuple[np.floating[Any], np.floating[Any]],  # see ``_sum_rows``
    slope: Float64,  # (n,) to add to
    start: int,  # The first item
    stop: int,  # The item after the last one
) -> float:
    """Sum the pairs of some items with all others, and add the slopes of these items."""
    x, g, d, power, inverse = block[0], block[1], block[2], block[3], block[4]
    value = 0.0
    for q in range(start, stop):
        of_pairs, pulls = constants[0], constants[0]
        mine = x[q], g[q], d[q], power[q], inverse[q]
        for j in range(n):
            pair, pull = _see(mine, (x[j], g[j], d[j], power[j], inverse[j]), logs, more_logs, constants)
            of_pairs += pair
            pulls += pull
        value += float(of_pairs)
        slope[q] += pulls
    return value


@compile_loop(fastmath=FREE, inline=True)
def _see(
    mine: tuple[np.floating[Any], ...],  # Score, gain, discount, and powers of an item
    other: tuple[np.floating[Any], ...],  # and those of another one
    logs: Floating,  # see ``_sum_rows``
    more_logs: Floating | None,  # see ``_sum_rows``
    constants: tuple[np.floating[Any], np.floating[Any]],  # see ``_sum_rows``
) -> tuple[np.floating[Any], np.floating[Any]]:
    """A pair's value, and its slope in the first score."""
    zero, one = constants
    apart = mine[2] - other[2]  # above 0 if the item ranks above the other one
    signed = (mine[1] - other[1]) * apart
    weight, wrong = abs(signed), max(-signed, zero)
    t = min(mine[3] * other[4], mine[4] * other[3])
    log = _add_eight(t, logs)
    if more_logs is not None:
        t2 = t * t
        t4 = t2 * t2
        log += t4 * t4 * _add_eight(t, more_logs)
    pull = wrong - weight * t / (one + t)
    return weight * t * log + wrong * abs(mine[0] - other[0]), pull if apart > zero else -pull


@compile_loop(fastmath=FREE, inline=True)
def _add_eight(t: np.floating[Any], c: Floating) -> np.floating[Any]:
    """Sum eight powers of t. Written out: a loop over factors would not become vector instructions."""
    powers: np.floating[Any] = c[0] + t * (
        c[1] + t * (c[2] + t * (c[3] + t * (c[4] + t * (c[5] + t * (c[6] + t * c[7])))))
    )
    return powers
