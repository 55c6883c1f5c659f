"""Reading row by row, with the error of a bad row in its place, and one error for all of them."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from cml.data.prepared_writer import SKIP_HINT
from cml.errors import DataError

_NAMED = 3  # rows that an error names of each kind
Line = TypeVar("Line")


Read = TypeVar("Read")


def read_each(
    rows: Iterable[tuple[str, Line | DataError]], read: Callable[[str, Line], Read]
) -> Iterator[Read | DataError]:
    """What ``read`` makes of each row that is no error and of where it stands, or what is wrong with it."""
    for where, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            yield read(where, row)
        except DataError as error:
            yield error


def refuse_bad_rows(rows: Iterable[object]) -> None:
    """Raise the first bad row of the most frequent kind, with how many there are of each kind, and the first ones."""
    rows = list(rows)
    faults = [row for row in rows if isinstance(row, DataError)]
    if not faults:
        return
    kinds: dict[str, list[str]] = {}
    for fault in faults:
        kinds.setdefault(re.sub(r"'[^']*'|-?[\d.,]+", "_", str(fault).partition(": ")[2]), []).append(str(fault))
    common = max(kinds.values(), key=len)
    text = common[0]
    if len(faults) > 1:
        each = [f"{len(same)} as in {', '.join(map(_shorten, same[:_NAMED]))}" for same in kinds.values()]
        more = f", and {len(kinds) - _NAMED} further kinds" if len(kinds) > _NAMED else ""
        text += f" {len(faults)} rows are bad: {'; '.join(each[:_NAMED])}{more}."
    # where most rows are bad, the file was read in the wrong way, and leaving out would hide it
    raise DataError(f"{text} {SKIP_HINT}" if len(faults) == 1 or 2 * len(faults) < len(rows) else text)


def _shorten(where: str) -> str:
    """The line alone of "FILE:LINE: fault", or the entry of "FILE: annotation 3: fault"."""
    where, _, rest = where.partition(": ")
    file, _, line = where.rpartition(":")
    if line.isdecimal():
        return f"line {line}" if int(line) > 1 else f"{Path(file).name}:{line}"  # line 1 is one of many files
    entry = re.match(r"\w+ \S+(?=: )", rest)
    return entry[0] if entry else where.rpartition(", ")[2]
