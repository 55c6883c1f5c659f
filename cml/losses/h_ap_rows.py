"""The compiled loop of ``h_ap.py``: value and slopes of each row, in less than B^2 steps where that is possible.

In units of the temperature, x_j is the score of item j. The soft rank of item k sums sigmoid(x_j - x_k) over the items
j that lie farther in label distance, and its slope sums their derivatives. There are two ways to these sums:

- By pairs: in the order of scores, the items within ``_REACH`` of x_k one by one; beyond it a sigmoid is 0 or 1 to the
  last digit. exp(x_j - x_k) is a quotient of two powers (``score_cells.py``), so a pair costs one division.
- By nodes: sigmoid(x_j - x_k) = sum_m sigmoid(x_j - c_m) l_m(x_k), with the Chebyshev nodes c_m of the row's range of
  scores and the Lagrange basis l_m in barycentric form (Berrut, Trefethen: Barycentric Lagrange Interpolation, SIAM
  Review 46, 2004). The poles of the sigmoid lie pi from the real axis, so each node more divides the error by a
  constant. In the order of label distances, the sum over farther items is a running sum of each node.
"""

import math

import numpy as np

from cml.array_types import Float64, Floating, Int64
from cml.distances.compile_loop import FREE, compile_loop
from cml.losses.score_cells import CELL_STEP, cut_cells

_REACH = 40.0  # exp(-40) is below the rounding of 1
# in times of a pair: what an item costs for each node, and what it costs beside its pairs
_NODE_COST = 2.0
_ITEM_COST = 300.0
_LEAST_WIDTH = 1e-3  # of the range of nodes


@compile_loop(fastmath=FREE)
def sum_h_ap(
    squared: Floating,  # (R, B) squared distances of embeddings; a score is -1/2 of one
    by_distance: Int64,  # (R, B) the columns by ascending squared distance, those that are not used last
    labels: Floating,  # (R, B) label distances
    by_label: Int64,  # (R, B) the columns by ascending label distance, those that are not used last
    gains: Floating,  # (R, B)
    used: Int64,  # (R,) the number of used columns
    temperature: float,  # divides differences of scores
    values: Float64,  # (R,) filled with 1 - H-AP
    slopes: Floating,  # (R, B) of zeros, filled with the derivatives of the values in the squared distances
) -> None:
    """Fill ``values`` and ``slopes`` for R rows of B columns."""
    columns = squared.shape[1]
    tolerance = 1e-8 if squared.itemsize == 4 else 1e-13  # the error of a sigmoid by nodes
    most = int((columns + _ITEM_COST) / _NODE_COST)
    basis, sigmoids = np.empty(columns * most), np.empty(columns * most)
    place, first, in_order = np.empty(columns, np.int64), np.empty(columns, np.int64), np.empty(columns, np.int64)
    scores, label, gain = np.empty(columns), np.empty(columns), np.empty(columns)
    near, total, slope = np.empty(columns), np.empty(columns), np.empty(columns)
    for row in range(len(squared)):
        n = used[row]
        if n == 0:
            values[row] = 0.0
            continue
        whole = 0.0
        for p in range(n):  # the farthest label first
            column = by_label[row, n - 1 - p]
            place[column] = p
            label[p], gain[p] = labels[row, column], gains[row, column]
            scores[p] = squared[row, column] * (-0.5 / temperature)
            first[p] = first[p - 1] if p > 0 and label[p] == label[p - 1] else p
            whole += gain[p]
        for q in range(n):
            in_order[q] = place[by_distance[row, q]]
        _sum_above(scores, in_order[:n], first, gain, near, total)
        width = scores[in_order[0]] - scores[in_order[n - 1]]
        nodes = _count_nodes(width, tolerance)
        pairs = n * min(1.0, 2 * _REACH / max(width, 1.0))
        if nodes <= most and nodes * _NODE_COST < pairs + _ITEM_COST:
            shape = (n, nodes)
            middle = scores[in_order[n - 1]] + 0.5 * width
            h_ap = _by_nodes(
                scores[:n],
                first,
                near,
                total,
                whole,
                middle,
                width,
                basis[: n * nodes].reshape(shape),
                sigmoids[: n * nodes].reshape(shape),
                slope,
            )
        else:
            h_ap = _by_pairs(scores, label, in_order[:n], total, whole, slope)
        values[row] = 1 - h_ap
        for p in range(n):
            slopes[row, by_label[row, n - 1 - p]] = slope[p] * (-0.5 / temperature)


@compile_loop(fastmath=FREE, inline=True)
def _count_nodes(width: float, tolerance: float) -> int:
    """The number of nodes over scores of a width, a multiple of 4."""
    poles = 2 * math.pi / max(width, _LEAST_WIDTH)  # their distance in half widths
    if not poles > 1e-3:  # NaN is not
        return 1 << 30
    decay = math.log(poles + math.sqrt(1 + poles * poles))  # of the log error, by node
    return (int(math.log(1 / tolerance) / decay) + 6) // 4 * 4


@compile_loop(fastmath=FREE)
def _sum_above(scores: Float64, in_order: Int64, first: Int64, gain: Float64, near: Float64, total: Float64) -> None:
    """Count and sum what ranks above each item, by two Fenwick trees over places in the order of label distances.

    All are (n,), by place but for ``in_order``, the places by descending score. ``first`` is the first place with the
    item's label distance: the items before it are farther. ``near`` is filled with the number of items of higher score
    that are not farther, ``total`` with h: the item's gain, and of each item of higher score the smaller of both gains.
    """
    n = len(in_order)
    numbers, gains = np.zeros(n + 1, np.int64), np.zeros(n + 1)
    start = 0
    while start < n:
        end = start
        while end < n and scores[in_order[end]] == scores[in_order[start]]:
            place = in_order[end]
            at, farther, less = first[place], 0, 0.0
            while at > 0:
                farther += numbers[at]
                less += gains[at]
                at &= at - 1
            near[place] = start - farther
            total[place] = gain[place] * (1 + start - farther) + less
            end += 1
        for q in range(start, end):
            at, added = in_order[q] + 1, gain[in_order[q]]
            while at <= n:
                numbers[at] += 1
                gains[at] += added
                at += at & -at
        start = end


@compile_loop(fastmath=FREE)
def _by_nodes(
    scores: Float64,  # (n,) by place, in the order of label distances, the farthest first
    first: Int64,  # see ``_sum_above``
    near: Float64,  # see ``_sum_above``
    total: Float64,  # see ``_sum_above``
    whole: float,  # the sum of all gains
    middle: float,  # the middle of the scores
    width: float,  # their range
    basis: Float64,  # (n, M) to be overwritten
    sigmoids: Float64,  # (n, M) to be overwritten
    slope: Float64,  # (n,) filled, by place
) -> float:
    """H-AP of a row; fills its slopes in the scores."""
    n, nodes = basis.shape
    node, weight, power = np.empty(nodes), np.empty(nodes), np.empty(nodes)
    for m in range(nodes):
        angle = (2 * m + 1) * math.pi / (2 * nodes)
        node[m] = 0.5 * max(width, _LEAST_WIDTH) * math.cos(angle)
        weight[m] = math.sin(angle) * (1 - 2 * (m & 1))
        power[m] = math.exp(node[m])
    of_sigmoids, of_slopes = np.zeros(nodes), np.zeros(nodes)  # sums over the farther items
    value, done = 0.0, 0
    for p in range(n):
        x = scores[p] - middle
        mine = math.exp(x)
        for m in range(nodes):
            sigmoids[p, m] = mine / (mine + power[m])
        while done < first[p]:
            of_one = sigmoids[done]
            for m in range(nodes):
                of_sigmoids[m] += of_one[m]
                of_slopes[m] += of_one[m] * (1 - of_one[m])
            done += 1
        divisor, soft, steep = 0.0, 0.0, 0.0
        for m in range(nodes):
            apart = x - node[m]
            part = weight[m] / (apart if abs(apart) > 1e-13 else 1e-13)
            basis[p, m] = part
            divisor += part
            soft += part * of_sigmoids[m]
            steep += part * of_slopes[m]
        rank = 1 + soft / divisor + near[p]
        value += total[p] / rank
        pull = total[p] / (rank * rank * whole)
        slope[p] = -pull * steep / divisor
        for m in range(nodes):
            basis[p, m] *= pull / divisor
    of_pulls = np.zeros(nodes)  # sums over the nearer items
    end = n
    while end > 0:  # one label distance after the other, the nearest first
        start = first[end - 1]
        for p in range(start, end):
            steep = 0.0
            for m in range(nodes):
                steep += sigmoids[p, m] * (1 - sigmoids[p, m]) * of_pulls[m]
            slope[p] += steep
        for p in range(start, end):
            for m in range(nodes):
                of_pulls[m] += basis[p, m]
        end = start
    return value / whole


@compile_loop(fastmath=FREE)
def _by_pairs(scores: Float64, labels: Float64, in_order: Int64, total: Float64, whole: float, slope: Float64) -> float:
    """H-AP of a row, of (n,) as in ``_sum_above`` and the sum of all gains; fills its slopes in the scores."""
    n = len(in_order)
    score, label = scores[in_order], labels[in_order]
    power, cell_start, cell_end = cut_cells(score)
    kept, of_pairs = np.empty(n), np.zeros(n)
    value, tie, low, high = 0.0, 0, 0, 0
    for q in range(n):
        while score[low] > score[q] + _REACH:
            low += 1
        while high < n and score[high] > score[q] - _REACH:
            high += 1
        if score[tie] != score[q]:
            tie = q
        mine, my_label = power[q], label[q]
        begin, end = max(low, cell_start[q]), min(high, cell_end[q])
        above = _fall(power[low:begin], label[low:begin], kept[low:begin], mine / CELL_STEP, my_label)
        above += _fall(power[begin:tie], label[begin:tie], kept[begin:tie], mine, my_label)
        below = _rise(power[tie:end], label[tie:end], kept[tie:end], mine, my_label)
        below += _rise(power[end:high], label[end:high], kept[end:high], mine * CELL_STEP, my_label)
        rank = 1 + tie - above + below
        value += total[in_order[q]] / rank
        pull = total[in_order[q]] / (rank * rank * whole)
        of_pairs[q] -= _add_slopes(kept[low:high], of_pairs[low:high], pull)
    for q in range(n):
        slope[in_order[q]] = of_pairs[q]
    return value / whole


@compile_loop(fastmath=FREE)
def _fall(power: Float64, label: Float64, kept: Float64, mine: float, my_label: float) -> float:
    """Keep 1 - sigmoid of the farther items of a stretch of places, 0 of the others, and sum it."""
    total = 0.0
    for j in range(len(power)):
        part = mine / (power[j] + mine)
        kept[j] = part if label[j] > my_label else 0.0
        total += kept[j]
    return total


@compile_loop(fastmath=FREE)
def _rise(power: Float64, label: Float64, kept: Float64, mine: float, my_label: float) -> float:
    """Keep the sigmoid of the farther items of a stretch of places, 0 of the others, and sum it."""
    total = 0.0
    for j in range(len(power)):
        part = power[j] / (power[j] + mine)
        kept[j] = part if label[j] > my_label else 0.0
        total += kept[j]
    return total


@compile_loop(fastmath=FREE)
def _add_slopes(kept: Float64, slope: Float64, pull: float) -> float:
    """Add the slopes of the items of a stretch of places, and sum them."""
    total = 0.0
    for j in range(len(kept)):
        part = pull * kept[j] * (1 - kept[j])
        slope[j] += part
        total += part
    return total
