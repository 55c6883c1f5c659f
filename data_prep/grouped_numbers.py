"""Numbers such as 1.500 that may mean 1500: points between thousands, as some languages write them."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from cml.data_prep.row_files import CELLS, find_delimiter

_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}\.\d{3}")
_WHOLE = re.compile(r"[+-]?\d{1,3}")
_FEWEST = 3  # numbers of each form


def find_grouped_numbers(
    path: Path, columns: Sequence[str]
) -> list[str]:  # numbers as they are written; none where nothing is suspicious
    """Find columns whose numbers are whole or have exactly three decimals, in a file of cells separated by semicolons.

    Such files come from programs that write a decimal comma, in which 1.500 means 1500. Numbers below 1000 then have no
    point, and all with a point have three digits behind it. Other separators, files that are not UTF-8 and numbers
    below 1 with a point say otherwise.
    """
    if path.suffix.lower() not in CELLS:
        return []
    grouped, whole = list[str](), list[str]()
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if find_delimiter(file.readline()) != ";":
                return []
            file.seek(0)
            for row in csv.DictReader(file, delimiter=";"):
                for text in ((row.get(column) or "").strip() for column in columns):
                    if not (_GROUPED.fullmatch(text) or _WHOLE.fullmatch(text)):
                        return []
                    (grouped if "." in text else whole).append(text)
    except (OSError, UnicodeError, csv.Error):  # reading it properly says what is wrong
        return []
    return [*whole[:1], *grouped[:3]] if len(grouped) >= _FEWEST else []
