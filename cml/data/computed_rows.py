"""Rows that are computed anew whenever a part of them is read, so that not all are in memory at a time."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64

Part = slice | Int64


class ComputedRows:
    """N rows of D numbers as an array (N, D) whose parts are computed at each reading, from several threads at a time.

    ``ndim``: the number of axes, 2.
    """

    dtype: np.dtype[np.float32] = np.dtype(np.float32)  # the type of the numbers, float32
    ndim = 2

    def __init__(
        self,
        shape: tuple[int, int],  # (N, D)
        compute: Callable[[Part], Float32],  # computes the rows (n, D) of a slice, or of positions (n,)
    ) -> None:
        self.shape = shape
        self._compute = compute

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Part) -> Float32:
        """Compute the rows of a slice, or of positions."""
        return self._compute(rows)

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Compute all rows, as ``numpy.asarray`` asks for."""
        return np.asarray(self._compute(slice(None)), dtype)
