"""Powers of scores whose quotients are exp(x_j - x_k), for compiled loops over the pairs of a row.

exp(x) of a score overflows, and exp(x_j - x_k) for each pair is slow. So the range of scores is cut into cells of the
length ``CELL``, and an item keeps exp of its distance from the lower end of its cell, in (1, exp(CELL)]. In one cell,
exp(x_j - x_k) is the quotient of two such powers; for a neighbouring cell it takes a factor ``CELL_STEP``.
"""

import math

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.compile_loop import ORDERED, compile_loop

CELL = 64.0  # exp(-64) is far below the rounding of 1, and the square of exp(64) far below the largest number
CELL_STEP = math.exp(CELL)


@compile_loop(fastmath=ORDERED)
def cut_cells(scores: Float64) -> tuple[Float64, Int64, Int64]:
    """Cut scores (n,), in descending order and in units of the temperature, into cells.

    Returns the power of each item (n,), and where its cell begins (n,) and ends (n,).
    """
    n = len(scores)
    power, cell_start, cell_end = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    start, last = 0, 0.0
    for q in range(n):
        cell = math.floor((scores[0] - scores[q]) / CELL)
        power[q] = math.exp(scores[q] - scores[0] + (cell + 1) * CELL)
        if cell != last:
            cell_end[start:q] = q
            start, last = q, cell
        cell_start[q] = start
    cell_end[start:n] = n
    return power, cell_start, cell_end
