"""Columns of numbers in untrusted .npz, CSV and Parquet files, read as a whole, without an object for each cell."""

import contextlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import require_extra
from cml.storage.regular_file import open_regular

_MOST_UNPACKED = 100  # times the size of a Parquet or .npz file
_FREE = 1 << 20  # bytes that any file may unpack to


def read_number_columns(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read columns of a table whose first line, or schema, names them; others are passed over."""
    columns = _read_csv(path, names) if path.suffix.lower() == ".csv" else _read_parquet(path, names)
    return {name: _as_whole_numbers(column) for name, column in columns.items()}


def read_npz_columns(path: Path, names: Sequence[str], *, optional: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read vectors (T,) of numbers, and optional single numbers, from a ``.npz`` file as ``numpy.savez`` writes it.

    NumPy reads it, without pickle, and unpacks at most ``_MOST_UNPACKED`` times the size of the file: without that
    bound a few kilobytes could ask for all memory, and test_broken_files in tests/distances/test_sparse_distances.py
    fails.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(2) != b"PK":  # NumPy would read an array or a pickle as such
            raise ValueError("it is damaged (it is no .npz file)")
        file.seek(0)
        with contextlib.ExitStack() as opened:
            with _one_line_errors():
                archive = opened.enter_context(np.load(file, allow_pickle=False))
                stored = sorted(archive.files)
                unpacked = sum(member.file_size for member in archive.zip.infolist())  # no more is read of a member
            if not {*names} <= {*stored} <= {*names, *optional} or len({*stored}) < len(stored):
                form = ", ".join(names) + (f" and may hold {', '.join(optional)}" if optional else "")
                raise ValueError(f"it must hold the arrays {form}. Got {_list_names(stored)}")
            if unpacked > _MOST_UNPACKED * size:
                raise ValueError(
                    f"it has {size:,} bytes, but its arrays unpack to {unpacked:,}, more than {_MOST_UNPACKED} times "
                    "as much; save it by numpy.savez"
                )
            with _one_line_errors():
                arrays = {name: archive[name] for name in stored}
                kinds = {name: array.dtype.kind for name, array in arrays.items()}
    for name, array in arrays.items():
        if kinds[name] not in "biuf" or array.ndim != (name in names):
            form = "must be a vector of numbers" if name in names else "must be a single number"
            raise ValueError(f"{name} {form}. Got {array.shape}, {array.dtype}")
    return {name: array.astype(array.dtype.newbyteorder("="), copy=False) for name, array in arrays.items()}


def _read_csv(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        header = [name.strip().strip('"') for name in file.readline().split(",")]
        _check_columns(header, names)
        places = [header.index(name) for name in names]
        with warnings.catch_warnings(action="ignore"):  # of no rows, which the caller refuses
            try:
                numbers = np.loadtxt(
                    file, np.float64, delimiter=",", quotechar='"', comments=None, usecols=places, ndmin=2
                )
            except ValueError as error:
                text = str(error).partition(";")[0].rstrip(".")
                row = re.search(r"^(could not convert .*) at row (\d+), column \d+$", text)  # counted from 0
                raise ValueError(f"line {int(row[2]) + 2}: {row[1]}" if row else text) from None
    return {name: numbers.reshape(-1, len(names))[:, place] for place, name in enumerate(names)}


def _read_parquet(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    with require_extra("parquet", "A Parquet file"):
        from pyarrow import parquet
    with open_regular(path) as file:
        with _one_line_errors():
            opened = parquet.ParquetFile(file)
            present, rows = list(opened.schema_arrow.names), opened.metadata.num_rows
        _check_columns(present, names)
        if 8 * rows * len(names) > _MOST_UNPACKED * path.stat().st_size + _FREE:
            raise ValueError(f"its {rows:,} rows unpack to more than {_MOST_UNPACKED} times its size")
        with _one_line_errors():
            table = opened.read(columns=list(names))
    columns = {}
    for name in names:
        column = table.column(name)
        if column.null_count:
            raise ValueError(f"the column {name!r} has {column.null_count} missing numbers")
        numbers = column.to_numpy()
        if numbers.dtype.kind not in "iuf":
            raise ValueError(f"the column {name!r} must hold numbers. Got {column.type}")
        columns[name] = numbers
    return columns


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    """Turn the errors of many classes that pyarrow, NumPy and zipfile have for a damaged file into one."""
    try:
        yield
    except Exception as error:
        text = str(error) or type(error).__name__
        raise ValueError(f"it is damaged ({text.splitlines()[0]})") from None


def _check_columns(present: Sequence[str], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in present]
    if missing:
        shown = ", ".join(name[:40] for name in present[:20])
        raise ValueError(f"there is no column {missing[0]!r}. There are: {shown}")


def _as_whole_numbers(column: NDArray[Any]) -> NDArray[Any]:
    """Floats that are whole numbers as int64; others as they are."""
    if column.dtype.kind != "f" or not (np.abs(column) < 1 << 53).all() or not (column == np.trunc(column)).all():
        return column
    return column.astype(np.int64)


def _list_names(names: list[str]) -> str:
    return repr(names[:5])[1:-1] + (f" and {len(names) - 5} more" if len(names) > 5 else "")
