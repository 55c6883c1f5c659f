"""The rows of published CSV files, whose columns are known."""

from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.table import Row, number, read_rows
from cml.errors import DataError


def read_published_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Row | DataError]]:
    """The rows of a published CSV file that has ``columns``, or what is wrong with one, each with "FILE:LINE"."""
    for where, row in read_rows(path):
        if not isinstance(row, DataError) and (lacking := [name for name in columns if name not in row]):
            raise DataError(f"{path}:1: should have a column {lacking[0]!r}. There are: {', '.join(row)}.")
        yield where, row


def within(value: object, column: str, where: str, low: float, high: float) -> float:
    """A cell's content as a number from ``low`` to ``high``."""
    if not low <= (found := number(value, column, where, own=False)) <= high:
        raise DataError(f"{where}: {column} should be from {low:g} to {high:g}. Got {found:g} instead.")
    return found
