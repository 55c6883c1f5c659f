"""Comparisons of two items, of which one won, as a score of each item: Bradley and Terry's, with its standard error."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cml.console.messages import say
from cml.data.vocabulary import split_words
from cml.data_prep.bradley_terry import score_items
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import CELLS, Misread, Quote, Row, find_delimiter, read_rows
from cml.errors import DataError

_WINNER = {"winner", "preferred", "chosen"}
_SIDES = ({"left", "a", "1", "first"}, {"right", "b", "2", "second"})
_TIES = {"equal", "tie", "draw", "same", "none", "0"}


class Comparisons(Reader):
    """A CSV file with the columns left, right and winner: which item was judged to have more of something."""

    title = "comparisons of two items, with a score of each by Bradley and Terry"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        if kind != "numbers" or path.suffix.lower() not in CELLS or not head:
            return False
        first = head.splitlines()[0]
        return find_columns(next(csv.reader([first], delimiter=find_delimiter(first)), [])) is not None

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        numbers: dict[str, int] = {}
        won: list[tuple[int, int, float]] = []  # the items of each row, and what the first won
        marks, columns = set[str](), ("left", "right", "winner")
        for where, row in read_rows(path, "comparisons", quote):
            if isinstance(row, DataError):
                raise row
            named = find_columns(list(row))
            if named is None:
                raise DataError(f"{where}: comparisons have the columns left, right and winner.")
            columns = named
            left, right, winner = (str(row[column]).strip() for column in columns)
            if left == right or not left or not right:
                raise DataError(f"{where}: two different items are compared. Got {left!r} and {right!r}.")
            share = _read_winner(winner, left, right, columns, where)
            marks.add(winner)
            won.append((numbers.setdefault(left, len(numbers)), numbers.setdefault(right, len(numbers)), share))
        if marks == {"0", "1"}:
            sides = f"{columns[0]} and {columns[1]}, or a tie and {columns[0]}"
            raise Misread(f"{path}: 0 and 1 in {columns[2]} may be {sides}: write left, right and equal.")
        pairs, shares = np.array([pair[:2] for pair in won]), [share for *_, share in won]
        scores, errors = score_items(pairs, np.array(shares), len(numbers))
        counts = np.bincount(pairs.ravel(), minlength=len(numbers))
        say(
            f"{path}: {len(won)} comparisons of {len(numbers)} items, of which {columns[0]} won {shares.count(1)} and "
            f"{columns[1]} {shares.count(0)}; a score 1 higher wins 73 % of the comparisons, and the standard error of "
            f"a score is {np.median(errors):.2f} at the median."
        )
        for name, place in numbers.items():
            cells = {"score": float(scores[place]), "error": float(errors[place]), "comparisons": int(counts[place])}
            yield f"{path}, item {name}", {"file_name": name, "id": name, **cells, "value": cells["score"]}


def find_columns(names: Sequence[str]) -> tuple[str, str, str] | None:
    """Find the columns of the two items and of the winner; None unless there is one of each."""
    words = {name: set(split_words(name.replace("1", " 1").replace("2", " 2"))) for name in names}
    winners = [name for name, own in words.items() if own & _WINNER]
    sides = [[name for name, own in words.items() if own & side and name not in winners] for side in _SIDES]
    found = [*sides, winners]
    return (found[0][0], found[1][0], found[2][0]) if all(len(own) == 1 for own in found) else None


def _read_winner(winner: str, left: str, right: str, columns: Sequence[str], where: str) -> float:
    """What the left item won: 1, 0, or a half of a tie."""
    if winner in (left, right):
        return float(winner == left)
    for share, column, side in ((1.0, columns[0], _SIDES[0]), (0.0, columns[1], _SIDES[1])):
        if winner.lower() in {column.lower(), *side}:
            return share
    if winner.lower() in _TIES:
        return 0.5
    raise DataError(
        f"{where}: {columns[2]} should be an item of the row, left, right or equal. Got {winner!r} instead."
    )
