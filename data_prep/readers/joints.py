"""Tables of joints: wide, with a column for each number (nose_x, nose_y), or long, with a row for each joint."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.console.messages import say
from cml.data.vocabulary import means, split_words
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import CELLS, Quote, Row, find_delimiter, read_rows
from cml.errors import DataError

_FEWEST = 3  # joints of a wide table


class Joints(Reader):
    """A CSV file with columns such as nose_x, nose_y, nose_visible; or with a row for each joint: its name, x and y."""

    title = "a table of joints"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        if kind != "keypoints" or path.suffix.lower() not in CELLS or not head:
            return False
        first = head.splitlines()[0]
        names = [name.strip() for name in next(csv.reader([first], delimiter=find_delimiter(first)), [])]
        return "keypoints" not in names and (len(find_wide(names)) >= _FEWEST or find_long(names) is not None)

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        rows = read_rows(path, quote=quote)
        head = next(rows, None)
        if head is None:
            return
        names = [] if isinstance(head[1], DataError) else list(head[1])
        if (long := find_long(names)) is not None:
            yield from _join_long([head, *rows], *long)
            return
        columns = find_wide(names)
        used = {column for own in columns.values() for column in own}
        if depths := [name for name in names if name[-1:].lower() == "z" and name[:-1].rstrip("_-. ") in columns]:
            listed = ", ".join(depths[:_FEWEST])
            say(f"{path}: {listed} and the like are left out, since joints in images have x and y alone.")
        for where, row in (pair for part in ([head], rows) for pair in part):
            if isinstance(row, DataError):
                yield where, row
                continue
            joints = {joint: [_empty(row[column]) for column in own] for joint, own in columns.items()}
            yield where, {**{name: cell for name, cell in row.items() if name not in used}, "keypoints": joints}


def find_wide(names: Sequence[str]) -> Mapping[str, list[str]]:
    """Find the columns of joints: name of a joint to those of x, y and, where there is one, the flag or confidence."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        words = split_words(name)
        part = words[-1] if len(words) > 1 else ""
        kind = part if part in ("x", "y") else "confidence" if means(part, "confidence") else ""
        if kind:
            found.setdefault(name[: name.lower().rindex(part)].rstrip("_-. "), {})[kind] = name
    kinds = ("x", "y", "confidence")
    return {joint: [own[kind] for kind in kinds if kind in own] for joint, own in found.items() if {"x", "y"} <= {*own}}


def find_long(names: Sequence[str]) -> tuple[str, list[str]] | None:
    """Find the columns of a row for each joint: its name; x, y and, where there is one, the flag. None for no such."""
    joint = [name for name in names if means(name, "joint")]
    places = [name for part in ("x", "y") for name in names if name.lower() == part]
    flags = [name for name in names if means(name, "confidence")]
    return (joint[0], [*places, *flags[:1]]) if len(joint) == 1 and len(places) == 2 else None


def _join_long(
    rows: Sequence[tuple[str, Row | DataError]], name: str, places: Sequence[str]
) -> Iterator[tuple[str, Row | DataError]]:
    """The people of a table with a row for each joint; those of one image are told apart by their other columns."""
    people: dict[tuple[str, ...], tuple[str, dict[str, Any]]] = {}
    for where, row in rows:
        if isinstance(row, DataError):
            yield where, row
            continue
        others = {column: cell for column, cell in row.items() if column not in (name, *places)}
        _, person = people.setdefault(tuple(map(str, others.values())), (where, {**others, "keypoints": {}}))
        if row[name] in person["keypoints"]:
            yield where, DataError(f"{where}: the joint {row[name]!r} of this image is listed twice.")
        person["keypoints"][row[name]] = [_empty(row[column]) for column in places]
    joints = dict.fromkeys(joint for _, person in people.values() for joint in person["keypoints"])
    for where, person in people.values():
        yield where, {**person, "keypoints": {joint: person["keypoints"].get(joint, [None, None]) for joint in joints}}


def _empty(cell: Any) -> Any:  # noqa: ANN401 - a cell
    return None if isinstance(cell, str) and cell.strip().lower() in ("", "nan", "na", "null") else cell
