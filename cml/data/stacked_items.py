"""Items of one shape as an array that is made when it is read: how vectors and tensors of a data set are kept."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Int64
from cml.data.dataset_items import DatasetItems
from cml.data.image_sources import as_array
from cml.errors import UserError


class StackedItems:
    """N arrays or tensors of one shape as an array (N, ...), whose rows are read anew at each indexing."""

    def __init__(
        self, items: DatasetItems, shape: tuple[int, ...] | None = None, dtype: np.dtype[Any] | None = None
    ) -> None:
        self._items = items
        if shape is None or dtype is None:
            first = item_array(items[0], f"Item {items.position(0)}")
            shape, dtype = first.shape, first.dtype
        self.shape = (len(items), *shape)
        self.dtype = dtype
        self.ndim = len(self.shape)
        self.fields = items.fields

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as NumPy's
        if isinstance(index, slice):
            return self.subset(index)
        if isinstance(index, tuple):  # a number of a row
            return self._row(int(index[0]))[index[1:]]
        rows = np.empty((len(index), *self.shape[1:]), self.dtype)
        for row, item in enumerate(index.tolist()):
            rows[row] = self._row(item)
        return rows

    def subset(self, items: slice | Int64) -> Self:
        """Take some items, without reading them."""
        return type(self)(self._items[items], self.shape[1:], self.dtype)

    def _row(self, row: int) -> NDArray[Any]:
        name = f"Item {self._items.position(row)}"
        array = item_array(self._items[row], name)
        if array.shape != self.shape[1:]:
            raise UserError(
                f"{name} of the data set has the shape {array.shape}, others {self.shape[1:]}: cut or pad them to one "
                "shape, or give collate=..., a function that joins a list of inputs to a batch."
            )
        return array


def item_array(value: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 - an item of any kind
    """Convert the input of an item to an array."""
    array = np.asarray(value) if isinstance(value, int | float | np.number) else as_array(value)
    if array is None and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different length
            array = None
        else:
            array = array.astype(np.float32) if array.dtype == np.float64 else array
    if array is None or array.dtype.kind not in "fiub":
        kind = type(value).__name__ if array is None else f"an array of {array.dtype}"
        raise UserError(
            f"{name} of the data set must be an array or tensor of numbers. Got {kind} instead: convert it, or give "
            "collate=..., a function that joins a list of inputs to a batch."
        )
    if array.ndim == 0:
        raise UserError(
            f"{name} of the data set is the single number {value}, as a label is: inputs come first, as in "
            "(x, label), or are named, as in features='...', label='...'."
        )
    return array
