"""The rows of a user's own ``.npy`` file of vectors."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Floating
from cml.data_prep.row_files import Misread
from cml.errors import DataError
from cml.storage.regular_file import map_array

Rows = Floating
_GROUPS = re.compile(r"[-+]?\d{1,3}(\s\d{3})+([.,]\d+)?")  # whose mark --thousands names
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|[-+]?(nan|inf)", re.IGNORECASE)


def is_vector_text(text: str) -> bool:
    """Tell whether a cell holds a vector as text: in brackets, or several numbers apart by spaces or semicolons.

    Groups of three digits, as in 1 234, are one number.
    """
    parts = [part.rstrip(",") for part in re.split(r"[\s;]+", text.strip())]
    is_row = len(parts) > 1 and all(map(_NUMBER.fullmatch, parts)) and not _GROUPS.fullmatch(text.strip())
    return is_row or text.lstrip().startswith(("[", "("))


def read_vector_text(text: str, column: str, where: str) -> list[float]:
    """Read a vector that is written as text in one cell, by JSON, Python or NumPy: "[0.1, 0.2]" or "0.1 0.2"."""
    if "..." in text:
        raise Misread(
            f"{where}: {column} was cut by NumPy, which writes ... for the middle of long arrays: its numbers are "
            "lost. Write the table again with vector.tolist(), or the vectors to a .npy file for --vectors."
        )
    parts = [part for part in re.split(r"[\s,;]+", text.strip().strip("[]()")) if part]
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        raise DataError(
            f"{where}: {column} should be a list of numbers such as [0.1, 0.2]. Got {text!r:.80} instead."
        ) from None
    if not numbers:
        raise DataError(f"{where}: {column} should be a list of numbers, but is empty. Got {text!r:.80}.")
    return numbers


def map_vectors(path: Path) -> NDArray[Any]:  # path: the ``.npy`` file -> (N, F) numbers of the file's own type
    """Map a file of vectors into memory."""
    try:
        rows = map_array(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not rows.shape[1]:
        raise DataError(f"{path} should hold vectors, (N, F) floats. It holds {rows.shape}, {rows.dtype}.")
    return rows


def store_row(
    row: NDArray[Any],  # (F,) numbers
) -> Rows:  # (F,) float16 or float32; a number that float32 cannot hold is infinite
    """Convert a vector to the type that a prepared dataset stores."""
    if row.dtype.char in "ef":  # float16, float32: their names take longer
        return np.asarray(row)
    with np.errstate(over="ignore"):
        return row.astype(np.float32)


def check_row(
    vector: Rows,  # (F,) floats
    where: str,
    columns: Sequence[str] = (),
    *,
    allow_missing: bool = False,  # whether a number may be missing (NaN)
) -> Rows:
    """Check that the numbers of a vector are finite."""
    allowed = np.isfinite(vector)
    if allow_missing:
        allowed |= np.isnan(vector)
    if not allowed.all():
        column = int(np.argmin(allowed))
        name = name_column(column, vector, columns)
        raise DataError(
            f"{where}: {name} should be a finite float32. Got {vector[column]!s} instead; mend it, or leave the column "
            "out."
        )
    return vector


def name_column(column: int, vector: Rows, columns: Sequence[str]) -> str:  # column: which number, from 0
    """Name a number of a vector for a message."""
    return columns[column] if len(columns) == len(vector) else f"column {column}"
