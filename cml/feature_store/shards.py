"""Rows in several memory-mapped files, read as one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Floating, Int64


class ShardedRows:
    """The rows (N, F) of several arrays, of which only those that are asked for are read."""

    ndim = 2

    def __init__(self, shards: Sequence[Floating]) -> None:
        self.shards = list(shards)
        self.starts = np.concatenate([[0], np.cumsum([len(shard) for shard in self.shards])])
        self.shape = (int(self.starts[-1]), self.shards[0].shape[1])
        self.dtype = self.shards[0].dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, items: Any) -> Any:  # noqa: ANN401 - as of an array
        """Read rows: those of a slice or of an array of positions, or one number by (row, column)."""
        if isinstance(items, tuple):
            row, column = items
            return self[np.array([row])][0, column]
        if isinstance(items, slice):
            items = np.arange(len(self))[items]
        positions = np.asarray(items, np.int64)
        shard_of = self.shard_of(positions)
        rows = np.empty((len(positions), self.shape[1]), self.dtype)
        for number in np.unique(shard_of).tolist():
            chosen = shard_of == number
            rows[chosen] = self.shards[number][positions[chosen] - self.starts[number]]
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - NumPy's
        """Read all rows."""
        del copy  # they are always copied
        rows = np.concatenate(self.shards)
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def shard_of(
        self,
        positions: Int64,  # their positions, (B,)
    ) -> Int64:  # the numbers of the shards, (B,)
        """Tell in which shard rows lie."""
        return np.searchsorted(self.starts, positions, side="right") - 1
