"""The vectors of a prepared dataset: a ``vectors.npy`` beside each metadata.jsonl, a row for each of its lines."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Floating
from cml.data.input_form import InputForm
from cml.errors import DataError
from cml.storage.regular_file import map_array, open_regular

Rows = Floating
TYPES = ("float16", "float32")
_CHARACTERS = "ef"  # those of NumPy, which are quicker to ask for than the names
_BLOCK = 1 << 24  # bytes that are read at a time


def read_vectors(
    path: Path,
    form: InputForm,
    count: int | None,  # the number of rows that it must have, N; None for any
    ids: NDArray[np.generic],
    *,
    may_miss_numbers: bool,  # whether a number may be missing (NaN)
    report: Callable[[str], object],
) -> tuple[Rows, bytes]:
    """Map a file of vectors into memory, and check every number.

    Returns the vectors, (N, F) float16 or float32, and the SHA-256 of the file. After a report they may be empty.
    """
    width = form.shape[0]
    nothing = np.empty((0, width), np.float32), b"\0" * 32
    try:
        rows = map_array(path)
        digest = _digest(path)
    except OSError as error:
        report(f"{path} cannot be read ({error.strerror}); it should hold the vectors of the items.")
        return nothing
    except ValueError as error:
        report(f"{path} cannot be read: {error}. Prepare the dataset again.")
        return nothing
    if rows.ndim != 2 or rows.shape[1] != width or rows.dtype.name not in TYPES or not rows.flags.c_contiguous:
        report(
            f"{path} should be an array (N, {width}) of float16 or float32 in C order, as dataset.json says. It holds "
            f"{rows.shape}, {rows.dtype}."
        )
        return nothing
    if count is not None and len(rows) != count:
        report(f"{path} has {len(rows)} rows, but the metadata.jsonl beside it has {count} lines: a row for each line.")
        return nothing
    step = max(1, _BLOCK // (width * rows.itemsize))
    for start in range(0, len(rows), step):
        fault = number_fault(rows[start : start + step], form, may_miss_numbers=may_miss_numbers)
        if fault is not None:
            row, text = start + fault[0], fault[1]
            name = f" (id {ids[row]})" if row < len(ids) else ""
            report(f"{path}: row {row}{name}, {text}.")
    return rows, digest


def number_fault(
    rows: Rows,  # vectors (B, F)
    form: InputForm,
    *,
    may_miss_numbers: bool,  # whether a number may be missing (NaN)
) -> tuple[int, str] | None:  # the row and what is wrong, to follow its name; None if there is nothing wrong
    """Find the first number that a vector may not hold."""
    allowed = np.isfinite(rows)
    if may_miss_numbers and not allowed.all():
        allowed |= np.isnan(rows)
    if allowed.all():
        return None
    row, column = (int(position[0]) for position in np.nonzero(~allowed))
    value = rows[row, column]
    rule = "should be a finite number" if may_miss_numbers else "should be a finite number, none may be missing"
    return row, f"{form.column_name(column)} of the vectors {rule}. It is {value!s}"


class VectorFile:
    """Writes a file of vectors row by row; the number of rows is filled in when the ``with`` block ends."""

    def __init__(self, path: Path, form: InputForm) -> None:
        self._path, self._form = path, form
        self._type: np.dtype[np.floating] | None = None  # that of the first row
        self._count = 0
        self._file: IO[bytes] = path.open("wb")

    def __enter__(self) -> "VectorFile":
        return self

    def __exit__(self, *error: object) -> None:
        with self._file:
            if self._type is None:
                self._begin(np.dtype(np.float32))
            self._file.seek(0)
            self._write_header()

    def check(self, rows: Sequence[Rows]) -> None:  # rows (F,) float16 or float32, all of one type
        """Check the shape and type of rows."""
        first = rows[0].dtype.char if rows[0].dtype.char in _CHARACTERS else ""
        wanted, shape = first if self._type is None else self._type.char, self._form.shape
        for row in rows:
            if row.shape != shape or row.dtype.char != wanted:
                types = " or ".join(TYPES if self._type is None else (self._type.name,))
                raise DataError(
                    f"its vector should be {shape[0]} numbers of {types}. Got {row.shape}, {row.dtype} instead"
                )

    def write(self, rows: Rows) -> None:  # (B, F)
        """Append rows that were checked."""
        if self._type is None and len(rows):
            self._begin(rows.dtype)
        self._file.write(np.ascontiguousarray(rows).tobytes())
        self._count += len(rows)

    def _begin(self, dtype: "np.dtype[np.floating]") -> None:
        self._type = dtype
        self._write_header()

    def _write_header(self) -> None:
        # NumPy leaves room for a larger number of rows, so that the length of the header does not depend on it
        assert self._type is not None
        shape = (self._count, *self._form.shape)
        description = {"descr": np.lib.format.dtype_to_descr(self._type), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, description)


def _digest(path: Path) -> bytes:
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").digest()
