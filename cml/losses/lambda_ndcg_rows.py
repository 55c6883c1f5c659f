"""The compiled loop of ``lambda_ndcg.py``: value and slopes of each row, every pair of items once.

In the order of scores, t = exp(x_j - x_i) <= 1 of an item j below item i is a quotient of two powers
(``score_cells.py``), and softplus(x_j - x_i) = log(1 + t) = 2 artanh(t / (2 + t)) is a short series. So a pair costs
two divisions and no exponential or logarithm, and the loop becomes vector instructions.
"""

import numpy as np

from cml.array_types import Float64, Floating, Int64
from cml.distances.compile_loop import FREE, compile_loop
from cml.losses.score_cells import CELL, CELL_STEP, cut_cells


@compile_loop(fastmath=FREE)
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
    columns = squared.shape[1]
    discounts = np.empty(columns)
    for q in range(columns):
        discounts[q] = 1 / np.log2(q + 2.0)
    score, gain, slope = np.empty(columns), np.empty(columns), np.empty(columns)
    for row in range(len(squared)):
        n = used[row]
        ideal = 0.0
        for q in range(n):
            column = by_distance[row, q]
            score[q] = squared[row, column] * (-0.5 / temperature)
            gain[q] = gains[row, column]
            slope[q] = 0.0
            ideal += gains[row, by_label[row, q]] * discounts[q]
        power, _, cell_end = cut_cells(score[:n])
        value = 0.0
        for q in range(n):
            end = cell_end[q]
            neighbor = end
            if end < n and score[q] - score[end] < CELL:
                neighbor = cell_end[end]
            stretches = ((q + 1, end, 1.0), (end, neighbor, 1 / CELL_STEP), (neighbor, n, 0.0))
            for start, stop, step in stretches:
                if start < stop:
                    of_pairs, pull = _add_pairs(
                        score[start:stop],
                        power[start:stop],
                        gain[start:stop],
                        discounts[start:stop],
                        slope[start:stop],
                        score[q],
                        power[q],
                        gain[q],
                        discounts[q],
                        step,
                    )
                    value += of_pairs
                    slope[q] -= pull
        values[row] = value / ideal if n else 0.0
        for q in range(n):
            slopes[row, by_distance[row, q]] = slope[q] * (-0.5 / temperature / ideal)


@compile_loop(fastmath=FREE)
def _add_pairs(
    score: Float64,  # (n,) in units of the temperature
    power: Float64,  # (n,) see ``score_cells.py``
    gain: Float64,  # (n,)
    discounts: Float64,  # (n,)
    slope: Float64,  # (n,) to add to
    my_score: float,  # Score of the item above
    my_power: float,  # Power of the item above
    my_gain: float,  # Gain of the item above
    my_discount: float,  # Discount of the item above
    step: float,  # A factor of the powers below
) -> tuple[float, float]:
    """Sum the pairs of an item with a stretch of items below it, and add their slopes.

    Returns the sum, and the sum of the slopes.
    """
    value, pulls = 0.0, 0.0
    for j in range(len(score)):
        less = power[j] * step
        softplus = 2 * _artanh(less / (2 * my_power + less))
        sigmoid = less / (my_power + less)
        weight = abs(my_gain - gain[j]) * (my_discount - discounts[j])
        wrong = gain[j] > my_gain
        value += weight * (softplus + (my_score - score[j] if wrong else 0.0))
        pull = weight * (sigmoid - 1 if wrong else sigmoid)
        slope[j] += pull
        pulls += pull
    return value, pulls


@compile_loop(fastmath=FREE, inline=True)
def _artanh(u: float) -> float:
    """The artanh of a number in [0, 1/3]; the next term is below the rounding of the first."""
    v = u * u
    # nested by fours, and written out: a loop over coefficients would not become vector instructions
    a = 1 + v * (1 / 3 + v * (1 / 5 + v * (1 / 7 + v * (1 / 9))))
    b = 1 / 11 + v * (1 / 13 + v * (1 / 15 + v * (1 / 17)))
    c = 1 / 19 + v * (1 / 21 + v * (1 / 23 + v * (1 / 25)))
    d = 1 / 27 + v * (1 / 29 + v * (1 / 31 + v * (1 / 33)))
    w = v * v * v * v
    return u * (a + v * w * (b + w * (c + w * d)))
