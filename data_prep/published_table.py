"""The rows of published CSV files, whose columns are known."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cml.data_prep.row_files import Row, number, read_rows
from cml.errors import DataError


def read_published_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Row | DataError]]:
    """Read the rows of a published CSV file."""
    for where, row in read_rows(path):
        if not isinstance(row, DataError):
            missing = [name for name in columns if name not in row]
            if missing:
                raise DataError(f"{path}:1: should have a column {missing[0]!r}. There are: {', '.join(row)}.")
        yield where, row


def read_within(value: object, column: str, where: str, low: float, high: float) -> float:
    """Read a cell as a number within bounds."""
    result = number(value, column, where, own=False)
    if not low <= result <= high:
        raise DataError(f"{where}: {column} should be from {low:g} to {high:g}. Got {result:g} instead.")
    return result
