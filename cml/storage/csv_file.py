"""CSV files that are written whole or not at all."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from cml.storage.atomic import atomic_file


def write_csv(path: Path | str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    r"""Write a table as a CSV file.

    Args:
        path: The file, which is replaced if it exists.
        columns: The names of the columns.
        rows: The cells of each row. What UTF-8 cannot hold, as half of a character in the name of a file, is written as
            an escape such as ``\ud800``.

    Returns:
        The file.
    """
    path = Path(path)
    with (
        atomic_file(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        csv.writer(file).writerows([columns, *rows])
    return path
