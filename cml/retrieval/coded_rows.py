"""Rows in 8 bits a number, which tell the few that may be nearest to a query; it imports numba: import it late.

One query of a gallery takes as long as the gallery is read from memory. Codes are a quarter of it, and how far each row
is from its code is known. So the rows that are then measured exactly include the k nearest, whatever the data.
"""

import threading
from typing import Any

import numpy as np
from numba import njit

from cml.array_types import Float32, Int64

Jit = Any  # an array as numba sees it
_CODES = 127
_ROUNDING = float(np.finfo(np.float32).eps)
_UNDERFLOW = float(np.finfo(np.float32).tiny)
_FREE_ORDER = {"reassoc", "contract"}  # sums in the machine's order: their rounding is bounded in any
_kept = threading.local()


class CodedRows:
    """Rows less their centre, each as 8-bit whole numbers times a step of its own."""

    def __init__(self, room: int, dimension: int) -> None:
        self.count = 0
        self._codes = np.empty((room, dimension), np.int8)
        self._steps = np.empty(room, np.float32)
        self._errors = np.empty(room, np.float32)  # how far a score may be off for a query of length 1

    def extend(self, rows: Float32, centre: Float32) -> None:  # (N, D), (D,)
        """Code the rows that are not yet coded, of all rows so far."""
        part = slice(self.count, len(rows))
        _code(rows[part], centre.astype(np.float64), self._codes[part], self._steps[part], self._errors[part])
        self.count = len(rows)

    def find_near(
        self,
        query: Float32,  # (D,) less the centre
        norms: Float32,  # (N,) squared norms of rows less the centre; infinite where a row is not to be found
        k: int,
    ) -> Int64:  # (n,) ascending
        """Positions of all rows that may be among the k nearest; k or more norms are finite."""
        least: Float32 | None = getattr(_kept, "least", None)  # new memory would cost a tenth of a query
        if least is None or len(least) < len(norms):
            least = _kept.least = np.empty(len(norms), np.float32)
        length: Jit = np.float32(np.linalg.norm(query.astype(np.float64)) * (1 + _ROUNDING))
        parts = self._codes[: len(norms)], self._steps, self._errors, norms
        near: Int64 = _find_near(query, length, *parts, k, least)
        return near


@njit(nogil=True, cache=True)
def _code(rows: Jit, centre: Jit, codes: Jit, steps: Jit, errors: Jit) -> None:
    count, dimension = rows.shape
    # a sum of D products, of the differences of two rounded numbers (Higham, "Accuracy and Stability of Numerical
    # Algorithms", 3.1), and what is done with the sum
    gamma = (dimension + 16) * _ROUNDING
    for i in range(count):
        largest = 0.0
        for j in range(dimension):
            largest = max(largest, abs(rows[i, j] - centre[j]))
        step = np.float32(largest / _CODES)
        if step == 0:
            step = np.float32(1)
        squared, rest = 0.0, 0.0
        for j in range(dimension):
            value = rows[i, j] - centre[j]
            code = min(max(np.rint(value / step), -_CODES), _CODES)
            codes[i, j] = np.int8(code)
            squared += value * value
            rest += (value - step * code) ** 2
        steps[i] = step
        errors[i] = (np.sqrt(rest) * (1 + gamma) + gamma * np.sqrt(squared)) * (1 + gamma)


@njit(nogil=True, cache=True, fastmath=_FREE_ORDER)
def _product(query: Jit, codes: Jit) -> Jit:
    total: Jit = np.float32(0)
    for j in range(len(query)):
        total += query[j] * np.float32(codes[j])
    return total


@njit(nogil=True, cache=True)
def _find_near(query: Jit, length: float, codes: Jit, steps: Jit, errors: Jit, norms: Jit, k: int, least: Jit) -> Jit:
    # |h|^2 - 2 q.h of rows and query less their centre is the squared distance but for a constant; the k rows whose
    # greatest possible scores are the smallest bound the k-th nearest from above
    heap = np.full(k, np.inf, np.float32)
    tiny = np.float32(4 * (len(query) + 16) * _UNDERFLOW)
    for i in range(len(codes)):
        score = norms[i] - np.float32(2) * steps[i] * _product(query, codes[i])
        error = np.float32(2) * length * errors[i] + np.float32(4 * _ROUNDING) * norms[i] + tiny
        least[i] = score - error
        most = score + error
        if most < heap[0]:
            parent = 0
            while True:
                child = 2 * parent + 1
                if child >= k:
                    break
                if child + 1 < k and heap[child + 1] > heap[child]:
                    child += 1
                if heap[child] <= most:
                    break
                heap[parent] = heap[child]
                parent = child
            heap[parent] = most
    near, size = np.empty(4 * k, np.int64), 0
    for i in range(len(codes)):
        if least[i] <= heap[0]:
            if size == len(near):
                longer = np.empty(2 * size, np.int64)
                longer[:size] = near
                near = longer
            near[size] = i
            size += 1
    return near[:size]
