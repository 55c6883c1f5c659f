"""The rows of a user's own CSV or JSONL file, each with "FILE:LINE", and what is wrong with one of them.

Not for: what the columns mean (folder.py, folder_labels.py), nor the files of public datasets.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cml.errors import DataError, UserError
from cml.storage.strict_json import parse_json

Row = Mapping[str, Any]


def read_rows(path: Path) -> Iterator[tuple[str, Row | DataError]]:
    """The rows of a CSV or JSONL file, or what is wrong with one, each with "FILE:LINE".

    Raises:
        UserError: the file's name has another ending.
        DataError: the file as a whole is not UTF-8, no CSV, or lists nothing.
    """
    if path.suffix.lower() not in (".csv", ".jsonl"):
        raise UserError(f"The labels should be a .csv or .jsonl file. Got {path} instead.")
    empty = True
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            for line, row in _csv(file, path) if path.suffix.lower() == ".csv" else _jsonl(file, path):
                yield f"{path}:{line}", row
                empty = False
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    if empty:
        raise DataError(f"{path} lists no images.")


class MissingColumn(DataError):
    """A row has no such column; in a CSV file, whose rows share a header, none has."""


def cell(row: Row, column: str, where: str, *, option: str = "--label-columns") -> Any:  # noqa: ANN401 - what is there
    """What stands in a column of a row.

    Raises:
        MissingColumn: there is no such column; names the option that says which.
    """
    if column not in row:
        there = ", ".join(map(str, row))
        raise MissingColumn(f"{where}: there is no column {column!r}. There are: {there}. Name yours with {option}.")
    return row[column]


def number(value: object, column: str, where: str) -> float:
    """A cell's content as a finite number.

    Raises:
        DataError: it is none.
    """
    try:
        found = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise DataError(
            f"{where}: {column} should be a finite number. Got {value!r} instead; for texts take --kind captions or "
            "--kind classes."
        )
    return found


def _csv(file: Iterator[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    reader = csv.DictReader(file, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                cells = len(reader.fieldnames or ())
                fault = DataError(f"{path}:{reader.line_num}: should have {cells} cells, as the header has.")
                yield reader.line_num, fault
            else:
                yield reader.line_num, row
    except csv.Error as error:
        raise DataError(f"{path}:{reader.reader.line_num}: is not CSV: {error}.") from None


def _jsonl(file: Iterator[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    for line_number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line.encode(), finite=False)
        except ValueError as error:
            row = DataError(f"{path}:{line_number}: {error}.")
        if not isinstance(row, dict | DataError):
            row = DataError(f"{path}:{line_number}: should be a JSON object {{..}}.")
        yield line_number, row
