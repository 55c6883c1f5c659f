"""CSV files that are written whole or not at all."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from cml.storage.atomic import atomic_file


def write_csv(path: Path | str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    r"""Write a table as a CSV file."""
    path = Path(path)
    with (
        atomic_file(path) as temporary,
        temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        csv.writer(file).writerows([columns, *rows])
    return path
