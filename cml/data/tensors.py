"""Tensors as inputs: N items of any one shape, for a backbone that takes them as they are."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Int64, Integer
from cml.data.input_form import InputForm
from cml.data.stacked_items import StackedItems
from cml.errors import UserError

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
