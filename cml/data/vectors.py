"""Vectors as inputs: N rows of F numbers, read in batches as float32, and their standardisation."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float32, Float64, Floating, Int64, Integer
from cml.data.input_form import InputForm, Missing
from cml.data.items import StackedItems
from cml.data.sparse_rows import SparseRows
from cml.errors import UserError

_CHUNK = 1 << 22  # numbers that are read at a time
_NEGLIGIBLE = 1e-20  # beside the median deviation of columns: no two units of a table are so far apart


class Standardization(NamedTuple):
    """Mean and standard deviation of each column."""

    mean: Float32  # (F,) float32
    std: Float32  # (F,) float32; 1 for a column that is constant
    constant: list[int]  # the positions of the columns that are constant


class Vectors:
    """N vectors, in memory or in a memory-mapped file."""

    def __init__(
        self,
        rows: Floating | StackedItems | SparseRows,  # (N, F) of any float type
        *,
        columns: tuple[str, ...] = (),
        missing: Missing = "refuse",  # what becomes of a missing number (NaN)
        items: Int64 | None = None,  # the positions of the N rows in ``rows``; None for all of them
        names: NDArray[np.generic] | None = None,
    ) -> None:
        if rows.ndim != 2 or rows.dtype.kind != "f" or not rows.shape[1]:
            hint = " A single vector x is given as x[None]." if rows.ndim == 1 else ""
            raise UserError(f"Vectors must be an array (N, F) of floats. Got {rows.shape}, {rows.dtype} instead.{hint}")
        self.rows: Any = rows
        self.reads_anew = isinstance(rows, StackedItems)
        fields = rows.fields if isinstance(rows, StackedItems) else ()
        self.form = InputForm("vectors", (rows.shape[1],), columns, missing=missing, fields=fields)
        self._items = items
        self._names = names

    def __len__(self) -> int:
        return len(self.rows) if self._items is None else len(self._items)

    @property
    def paths(self) -> None:
        """None: vectors are no image files."""
        return

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the vectors, which shares their memory."""
        rows, names, positions = self.rows, self._names, self._items
        if positions is not None:
            positions = positions[items]
        elif isinstance(items, slice):
            rows, names = rows[items], None if names is None else names[items]
        else:
            positions = items
        form = self.form
        return type(self)(rows, columns=form.columns, missing=form.missing, items=positions, names=names)

    def with_missing(self, missing: Missing) -> Self:
        """Change what becomes of a missing number."""
        return type(self)(self.rows, columns=self.form.columns, missing=missing, items=self._items, names=self._names)

    def load(self) -> None:
        """Do nothing: rows are in memory, or read from their file by the operating system."""

    def read(
        self,
        items: Integer | slice,  # their positions, (B,), or a slice of them
    ) -> Float32:  # the vectors, (B, F) float32. Those of a slice may share the memory of the rows: do not change them
        """Read some vectors."""
        rows = self.rows[items if self._items is None else self._items[items]]
        if rows.dtype == np.float16:  # NumPy converts them one by one, torch many at a time
            import torch

            return torch.from_numpy(np.require(rows, requirements="W")).float().numpy()
        with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which ``check`` reports
            return np.ascontiguousarray(rows, np.float32)

    def check(self, items: Integer) -> None:  # items (B,)
        """Check that some vectors have only finite numbers, or missing ones where these are allowed."""
        self._check(self.read(items), items)

    def standardization(self) -> Standardization:
        """Compute mean and standard deviation of the present numbers of each column, in one pass over the rows.

        Parts are combined by the formula of Chan, Golub and LeVeque (The American Statistician 37, 1983), in float64.
        """
        width = self.form.shape[0]
        count, mean, squares = (np.zeros(width) for _ in range(3))
        step = max(1, _CHUNK // width)
        for start in range(0, len(self), step):
            items = np.arange(start, min(start + step, len(self)))
            part = self.read(items)
            self._check(part, items)
            present = ~np.isnan(part)
            counts = present.sum(axis=0)
            known = np.where(present, part, 0).astype(np.float64)
            means = known.sum(axis=0) / np.maximum(counts, 1)
            deviations = np.where(present, known - means, 0)
            total = count + counts
            gap = means - mean
            share = counts / np.maximum(total, 1)
            squares += (deviations**2).sum(axis=0) + gap**2 * count * share
            mean += gap * share
            count = total
        if len(self) and not count.all():
            where = self.form.column_name(int(np.argmin(count)))
            raise UserError(f"All numbers of {where} are missing: leave the column out.")
        deviation = np.sqrt(squares / np.maximum(count, 1))
        is_constant = _find_constant(deviation, mean)
        std = np.where(is_constant, 1, deviation).astype(np.float32)
        constant = np.flatnonzero(is_constant).tolist()
        return Standardization(mean.astype(np.float32), np.maximum(std, np.finfo(np.float32).tiny), constant)

    def _check(self, part: Float32, items: Integer) -> None:
        allowed = np.isfinite(part)
        if self.form.missing == "mean":
            allowed |= np.isnan(part)
        if allowed.all():
            return
        row, column = (int(position[0]) for position in np.nonzero(~allowed))
        at = int(items[row]) if self._items is None else int(self._items[items[row]])
        name = f"row {at}" if self._names is None else f"row {at} (id {self._names[at]})"
        value = self.rows[at, column]
        fault = f"{name}, {self.form.column_name(column)} of the vectors is {value!s}"
        if np.isnan(value):
            raise UserError(
                f"{fault}: fill it, leave the row out, or train with missing='mean', which takes the column's mean."
            )
        raise UserError(f"{fault}, which is not a finite float32: mend it, or leave the row out.")


def _find_constant(
    deviation: Float64,  # (F,) of each column
    mean: Float64,  # (F,)
) -> Bools:  # (F,)
    """Find columns of one number: those that vary by the rounding of float32 alone, or not beside the others.

    A network leaves numbers such as 1e-33 in units that it does not use. Divided by their deviation, any other number
    there would outweigh all columns.
    """
    rounding = np.finfo(np.float32).eps * np.abs(mean)
    varying = deviation[deviation > rounding]
    beside = _NEGLIGIBLE * np.median(varying) if varying.size else 0.0
    is_constant: Bools = deviation <= np.maximum(rounding, beside)
    return is_constant


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
