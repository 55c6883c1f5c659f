"""Inputs that are neither images nor vectors: tensors of one shape, and items that a function of one's own joins."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Int64, Integer
from cml.data.dataset_items import DatasetItems
from cml.data.image_sources import as_array
from cml.data.input_form import Collate, InputForm
from cml.errors import UserError
from cml.processes.memory import is_out_of_memory


class Items:
    """N items of any kind, read anew at each use and joined by a function of the user's own.

    ``reads_anew``: true, for an item may differ at each read.
    """

    reads_anew = True

    def __init__(self, source: DatasetItems, collate: Collate) -> None:
        if not callable(collate):
            raise UserError(f"'collate' must be a function of a list of inputs. Got {type(collate).__name__} instead.")
        self._source = source
        self._collate = collate
        self.form = InputForm("items", fields=self._source.fields)  # the kind ``items``, of no shape

    def __len__(self) -> int:
        return len(self._source)

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the items, without reading them."""
        return type(self)(self._source[items], self._collate)

    def load(self) -> None:
        """Do nothing: items are read when they are used."""

    def read(
        self,
        items: Integer,  # their positions, (B,)
    ) -> Any:  # noqa: ANN401 - a batch of any kind
        """Read some items and join them.

        Returns what ``collate`` makes of them.
        """
        return self.join(self.read_each(items), items)

    def read_each(self, items: Integer) -> list[Any]:  # items (B,)
        """Read some items, without joining them."""
        return [self._source[item] for item in items.tolist()]

    def join(
        self,
        values: list[Any],
        items: Integer,  # their positions, (B,), for messages
    ) -> Any:  # noqa: ANN401 - a batch of any kind
        """Join items to a batch.

        Returns what ``collate`` makes of them.
        """
        try:
            return self._collate(values)
        except UserError:
            raise
        except Exception as error:  # a function of the user's own may raise anything
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
            numbers = [self._source.position(item) for item in items.tolist()]
            shown = f"{', '.join(map(str, numbers[:5]))}{', ...' if len(numbers) > 5 else ''}"
            kind = type(values[0]).__name__ if values else "nothing"
            raise UserError(
                f"'collate' fails on a list of {len(values)} inputs of type {kind}, the items {shown} ({reason})."
            ) from error


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


_WHOLE = (np.int64, np.int32)  # kept as int64; smaller integers are levels, as of a scan, and become floats


class Tensors:
    """N tensors of one shape, in memory or in a memory-mapped file.

    Floats and integers of at most 16 bits are read as float32, unscaled; integers of 32 and 64 bits, such as token ids,
    as int64.
    """

    def __init__(self, items: NDArray[Any] | StackedItems) -> None:  # items (N, ...)
        if items.ndim < 2 or items.dtype.kind not in "fiub" or items.dtype in (np.uint32, np.uint64):
            raise UserError(
                "Tensors must be an array (N, ...) of floats, of integers of at most 16 bits, int32 or int64. "
                f"Got {items.shape}, {items.dtype} instead."
            )
        self._source = items
        self.reads_anew = isinstance(items, StackedItems)
        fields = items.fields if isinstance(items, StackedItems) else ()
        self.form = InputForm("tensors", items.shape[1:], whole=items.dtype in _WHOLE, fields=fields)

    def __len__(self) -> int:
        return len(self._source)

    @property
    def paths(self) -> None:
        """None: tensors are no image files."""
        return

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the tensors."""
        source = self._source
        return type(self)(source.subset(items) if isinstance(source, StackedItems) else source[items])

    def load(self) -> None:
        """Do nothing: tensors are in memory, or read from their file by the operating system."""

    def read(
        self,
        items: Integer,  # their positions, (B,)
    ) -> NDArray[Any]:  # the tensors, (B, ...) float32 or int64
        """Read some tensors."""
        return np.ascontiguousarray(self._source[items], np.int64 if self.form.whole else np.float32)

    def check(self, items: Integer) -> None:  # items (B,)
        """Check that some tensors have only finite numbers."""
        is_finite = np.isfinite(self.read(items)).reshape(len(items), -1).all(axis=1)
        if not is_finite.all():
            item = int(items[np.argmin(is_finite)])
            raise UserError(f"Item {item} of the tensors has a number that is not a finite float32: mend or drop it.")
