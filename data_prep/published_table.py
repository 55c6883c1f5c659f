"""The rows of published CSV files, whose columns are known."""

from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.row_files import Row, number, read_rows
from cml.errors import DataError


def read_published_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Row | DataError]]:
    """Read the rows of a published CSV file.

    Args:
        path: The file.
        columns: The columns that it should have.

    Yields:
        Each row with "FILE:LINE", or what is wrong with it.

    Raises:
        DataError: A column is missing, or the file is not CSV.
    """
    for where, row in read_rows(path):
        if not isinstance(row, DataError):
            missing = [name for name in columns if name not in row]
            if missing:
                raise DataError(f"{path}:1: should have a column {missing[0]!r}. There are: {', '.join(row)}.")
        yield where, row


def read_within(value: object, column: str, where: str, low: float, high: float) -> float:
    """Read a cell as a number within bounds.

    Args:
        value: Content of the cell.
        column: Name of the column, for errors.
        where: "FILE:LINE", for errors.
        low: The lowest number allowed.
        high: The highest number allowed.

    Returns:
        The number.

    Raises:
        DataError: The cell holds no finite number, or one out of bounds.
    """
    result = number(value, column, where, own=False)
    if not low <= result <= high:
        raise DataError(f"{where}: {column} should be from {low:g} to {high:g}. Got {result:g} instead.")
    return result
