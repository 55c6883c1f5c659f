"""Pairs of an item in the upper half of a stretch of a ranking with one in its lower half, without visiting each pair.

Over such pairs, sum |g_p - g_q| (d_p - d_q) h(x_p - x_q), with h(u) = log(1 + exp(-u)) + u / 2. Let r lie between the
scores of the two halves, and y = |x - r|. Then u = y_p + y_q, and log(1 + t) of t = exp(-u) <= 1 is a short polynomial
in t = exp(-y_p) exp(-y_q). So h is a sum of products of a number of p with a number of q: the rows here, powers of
exp(-y). Of u / 2, each item takes its y / 2. Once the sign of g_p - g_q is known, the weights are sums of products as
well: in ascending order of gains, running sums over what was seen of the other half are all that an item needs. So n
items take O(n) steps.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.compile_loop import FREE, compile_loop
from cml.distances.lanes import first, four, load, plus, store, times, total

FAR = 35.0  # exp(-35) is below the rounding of 1, and its 20th power above the smallest number
WIDE = 600.0  # a range of scores whose powers overflow


def expand(function: Callable[[Any], Any], terms: int) -> Float64:
    """The factors (terms,) of the powers of t in a function of t in [0, 1], from the power 0 on.

    Of log(1 + t) / t and 1 / (1 + t), the relative error is about 6 ** -terms. The polynomial interpolates at Chebyshev
    nodes.
    """
    curve: Any = np.polynomial.Chebyshev.interpolate(function, terms - 1, domain=[0, 1])
    factors: Float64 = curve.convert(kind=np.polynomial.Polynomial).coef
    return factors


def log_ratio(t: Float64) -> Float64:
    """The function log(1 + t) / t."""
    return np.log1p(t) / t


def _row_factors(terms: int) -> Float64:
    """The factors (2, 1 + terms) of the rows in log(1 + t), and in the slope of h in y, one after the other."""
    return np.concatenate([[0], expand(log_ratio, terms), [0.5], expand(lambda t: -1 / (1 + t), terms)])


SINGLE, DOUBLE = _row_factors(11), _row_factors(19)  # for scores of float32, to 8e-9, and of float64


@compile_loop(fastmath=FREE)
def add_halves(
    score: Float64,  # (n,) in descending order
    power: Float64,  # (n,) exp of the scores less some number, unless ``wide``
    inverse: Float64,  # (n,) 1 / power
    wide: bool,  # whether powers overflow
    gain: Float64,  # (n,)
    discount: Float64,  # (n,)
    order: Int64,  # (n,) the items by ascending gain
    middle: int,  # The first item of the lower half
    factors: Float64,  # (2 width,) see ``_row_factors``; the width is a multiple of 4
    rows: Float64,  # (n width,) to be overwritten
    seen: Float64,  # (8 width,) to be overwritten
    slope: Float64,  # (n,) to add the derivatives in the scores to
) -> float:
    """Sum the pairs of the two halves, and add their slopes."""
    n, width, center = len(score), len(factors) // 2, discount[middle]
    between, up, down = score[middle], power[middle], inverse[middle]
    for q in range(n):
        y = abs(score[q] - between)
        near = inverse[q] * up if q < middle else power[q] * down
        e = math.exp(-y) if wide else near
        e = e if y < FAR else 0.0
        e2 = e * e
        lanes = four(1.0, e, e2, e * e2)
        for at in range(q * width, (q + 1) * width, 4):
            store(rows, at, lanes)
            lanes = times(lanes, e2 * e2)
    # In ``seen``, four rows after the other, the sums over the upper half and over the lower one, with the factors 1,
    # g, d and g d. They begin at minus half of all: an item sees what has less gain, less what has more, over 2.
    for start, stop, base in ((0, middle, 0), (middle, n, 4 * width)):
        for step in range(0, width, 4):
            lanes = four(0.0, 0.0, 0.0, 0.0)
            of_one, of_gain, of_discount, of_both = lanes, lanes, lanes, lanes
            for q in range(start, stop):
                g, d = -0.5 * gain[q], discount[q] - center
                lanes = load(rows, q * width + step)
                of_one = plus(of_one, times(lanes, -0.5))
                of_gain = plus(of_gain, times(lanes, g))
                of_discount = plus(of_discount, times(lanes, -0.5 * d))
                of_both = plus(of_both, times(lanes, g * d))
            at = base + 4 * step
            store(seen, at, of_one)
            store(seen, at + 4, of_gain)
            store(seen, at + 8, of_discount)
            store(seen, at + 12, of_both)
    value, values = 0.0, four(0.0, 0.0, 0.0, 0.0)
    for place in range(n):
        q = order[place]
        lower = np.int64(q >= middle)
        sign = 1.0 - 2 * lower  # as d_p - d_q is positive
        g, d = gain[q], discount[q] - center
        gd, of_g, of_d, of_gd = g * d, -sign * g, -sign * d, sign * g * d
        mine, other, at = lower * 4 * width, (1 - lower) * 4 * width, q * width
        pulls = four(0.0, 0.0, 0.0, 0.0)
        for step in range(0, width, 4):
            lanes = load(rows, at + step)
            one = plus(times(load(seen, other), of_gd), times(load(seen, other + 4), of_d))
            two = plus(times(load(seen, other + 8), of_g), times(load(seen, other + 12), sign))
            weighted = times(plus(one, two), lanes)
            pulls = plus(pulls, times(weighted, load(factors, width + step)))
            values = plus(values, times(weighted, load(factors, step)))
            if step == 0:
                value += abs(score[q] - between) * first(weighted)
            store(seen, mine, plus(load(seen, mine), lanes))
            store(seen, mine + 4, plus(load(seen, mine + 4), times(lanes, g)))
            store(seen, mine + 8, plus(load(seen, mine + 8), times(lanes, d)))
            store(seen, mine + 12, plus(load(seen, mine + 12), times(lanes, gd)))
            mine, other = mine + 16, other + 16
        slope[q] += 2 * sign * total(pulls)
    summed: float = value + total(values)
    return summed
