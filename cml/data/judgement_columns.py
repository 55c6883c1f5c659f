"""The columns of a table of judgements, and the numbers of the items that its rows name."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.data.tensor_array import tensor_array
from cml.errors import DataError, UserError
from cml.storage.safe_paths import look_up

_NAMED = 5  # items that a remark names
_MOST_ITEMS = 10_000_000  # whose labels take 2 GB; a number that is wrong by much would take all memory


class JudgementColumns:
    """The columns of a table of judgements."""

    def __init__(
        self,
        # a data frame, a mapping of columns, a list of records (a mapping for each row), or an array (J, C) of numbers,
        # whose columns are ``names`` in order
        rows: Any,  # noqa: ANN401 - the kinds listed above
        names: Sequence[str],
        required: int,  # how many of the first ``names`` each table has
        title: str,
        # what each row is called in messages, such as "pairs.csv:7"; None for its number in ``title``
        places: Sequence[str] | None = None,
        faults: list[DataError] | None = None,  # gets what is wrong with a row, which is then left out; None raises it
        *,
        spelled: str = "",  # the required columns in words, for messages; the first ``names`` by default
    ) -> None:
        spelled = spelled or ", ".join(names[:required])
        if isinstance(rows, str | os.PathLike):
            raise UserError(
                f"{title.capitalize()} should be a data frame, a mapping of columns or an array. Got the path "
                f"{str(rows)!r}: read the file first, as by pandas.read_csv."
            )
        if (named := as_columns(rows)) is not None:
            there = list(named)
            columns = {name: column for name, column in named.items() if name in names}
        else:
            array = np.asarray(rows)
            if array.ndim != 2 or not required <= array.shape[1] <= len(names):
                raise UserError(
                    f"{title.capitalize()} should be a data frame, a mapping of columns or an array (J, {required}): "
                    f"{', '.join(names[:required])}. Got {type(rows).__name__} of shape {array.shape} instead."
                )
            there = list(names[: array.shape[1]])
            columns = {name: column.tolist() for name, column in zip(there, array.T, strict=True)}
        missing = [name for name in names[:required] if name not in columns]
        if missing:
            raise UserError(
                f"{title.capitalize()} have no column {missing[0]!r}. There are: {', '.join(there)}. They "
                f"should be {spelled}; rename yours only where they mean the same."
            )
        counts = {name: len(column) for name, column in columns.items()}
        count = counts[names[0]]
        if set(counts.values()) != {count}:
            each = ", ".join(f"{name} {length}" for name, length in counts.items())
            raise UserError(f"{title.capitalize()} should have columns of one length. Got {each}.")
        if not count:
            raise UserError(f"{title.capitalize()} have no rows.")
        self._columns, self._faults = columns, faults
        self.remarks = _describe_unread([name for name in there if name not in columns], names)
        self.places = [f"row {row} of {title}" for row in range(count)] if places is None else places
        self.kept = np.ones(count, np.bool_)  # (J,) which rows were not left out so far

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def refuse(self, row: int, fault: str) -> None:
        """Leave out a row, or raise what is wrong with it."""
        place = self.places[row]
        start = "Row" + place.removeprefix("row") if place.startswith("row ") else place  # not the name of a file
        error = DataError(f"{start} {fault}" if self._faults is None else f"{place}: {fault}")
        if self._faults is None:
            raise error
        if self.kept[row]:
            self._faults.append(error)
        self.kept[row] = False

    def items(self, name: str, numbers: dict[Any, int]) -> Int64:  # (J,) numbers; -1 for a row that is left out
        """Read a column of items. A name may be in another Unicode normal form than that of the item."""
        found = np.full(len(self.kept), -1)
        for row, value in enumerate(self[name]):
            if isinstance(value, str):
                number = look_up(value, numbers)
                number = look_up(value.strip(), numbers) if number is None else number
            else:
                number = numbers.get(value if isinstance(value, int) else _whole(value))
            if number is None:
                shown = int(value) if isinstance(value, float) and value.is_integer() else value
                self.refuse(row, f"names the {name} {shown!r}, which is {_describe_items(shown, numbers)}.")
            else:
                found[row] = number
        return found

    def raters(
        self,
    ) -> NDArray[np.str_] | None:  # (J,) their names, "" where none is named; None if there is no such column
        """Read the column of raters."""
        if "rater" not in self:
            return None
        return np.array(["" if _is_missing(rater) else str(rater).strip() for rater in self["rater"]])

    def numbers(
        self,
        name: str,
        rule: str,
        allowed: Callable[[float], bool],  # whether a finite number may be there
    ) -> Float64:  # (J,); 0 for a row that is left out
        """Read a column of numbers."""
        values = np.zeros(len(self.kept))
        for row, cell in enumerate(self[name]):
            number = _float(cell)
            if math.isfinite(number) and allowed(number):
                values[row] = number
            else:
                self.refuse(row, f"has the {name} {cell!r}, which should be {rule}.")
        return values


def number_items(
    # their names in order, or how many there are; None for as many as the largest number that is named and 1
    items: Sequence[Any] | int | None,
    named: Iterable[Sequence[Any]],
) -> dict[Any, int]:  # name to number; items without names are called by their numbers
    """Number the items that judgements may name."""
    if items is None:
        largest = max((_whole(value) for column in named for value in column), default=-1)
        items = largest + 1
    if isinstance(items, int | np.integer):
        if items > _MOST_ITEMS:
            raise UserError(
                f"Judgements must be about {_MOST_ITEMS:,} items at most, since each gets a label. Got {int(items):,}; "
                "name the items, or number those that are judged from 0."
            )
        return {number: number for number in range(int(items))}
    numbers = {_plain(item): number for number, item in enumerate(items)}
    if len(numbers) < len(items):
        counts = Counter(map(_plain, items))
        twice = next(item for item, count in counts.items() if count > 1)
        raise UserError(f"'items' should name each item once. Got {twice!r} twice.")
    return numbers


def describe_items_without_judgement(numbers: Mapping[Any, int], judged: Iterable[int]) -> list[str]:
    """Name the items without any judgement, from which nothing is learned."""
    known = set(judged)
    left = [name for name, number in numbers.items() if number not in known]
    if not left:
        return []
    names = ", ".join(map(str, left[:_NAMED])) + (", ..." if len(left) > _NAMED else "")
    return [f"{len(left)} of {len(numbers)} items have no judgement and are left out: {names}"]


def as_columns(rows: Any) -> dict[str, list[Any]] | None:  # noqa: ANN401 - as of ``JudgementColumns``
    """Return a table as its columns by their names; None for an array, whose columns have no names."""
    if _are_records(rows):
        rows = join_records(rows)
    if not hasattr(rows, "columns") and not isinstance(rows, Mapping):
        return None
    return {str(name): _as_list(rows[name]) for name in (rows if isinstance(rows, Mapping) else rows.columns)}


def join_records(
    records: Sequence[Mapping[str, Any]],  # a mapping for each row; what a row lacks is None
) -> dict[str, list[Any]]:
    """Turn records into columns."""
    names = dict.fromkeys(str(name) for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _are_records(rows: object) -> bool:
    return isinstance(rows, list | tuple) and bool(rows) and all(isinstance(row, Mapping) for row in rows)


def _describe_unread(unread: Sequence[str], names: Sequence[str]) -> list[str]:
    """Name the columns that are not read: a weight under another name would be lost in silence."""
    if not unread:
        return []
    listed = ", ".join(unread[:_NAMED]) + (", ..." if len(unread) > _NAMED else "")
    return [f"columns that are not read: {listed}; those that are read: {', '.join(names)}"]


def _describe_items(value: Any, numbers: dict[Any, int]) -> str:  # noqa: ANN401 - a cell
    """Say which items there are, beside a value that names none of them."""
    known = f"none of the {len(numbers):,} items"
    if not numbers:
        return f"{known}. Give 'items', the names of all items in order"
    first, last = next(iter(numbers)), next(reversed(numbers))
    if isinstance(first, int) and (first, last) == (0, len(numbers) - 1):
        known += f", whose numbers are 0 to {last}"
    else:
        known += f", such as {first!r}"
    if (int(value) if isinstance(value, str) and value.isdecimal() else str(value)) in numbers:
        one, other = ("texts", "numbers") if isinstance(first, str) else ("numbers", "texts")
        known += f": the items are named by {one}, the rows by {other}; convert one of them"
    return known


def _is_missing(cell: Any) -> bool:  # noqa: ANN401
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _as_list(column: Any) -> list[Any]:  # noqa: ANN401 - a column of any frame
    if hasattr(column, "detach"):
        column = tensor_array(column)
    if hasattr(column, "notna"):  # pandas has several kinds of missing values
        column = column.astype(object).where(column.notna(), None)
    values: list[Any] = column.tolist() if hasattr(column, "tolist") else list(column)
    return values


def _plain(value: Any) -> Any:  # noqa: ANN401 - a name of any type
    return value.item() if isinstance(value, np.generic) else value


def _whole(value: Any) -> int:  # noqa: ANN401 - a cell
    """A cell as the number of an item; -1 for what is none."""
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return int(value) if is_whole and not isinstance(value, bool) and value >= 0 else -1


def _float(value: Any) -> float:  # noqa: ANN401 - a cell
    """A cell as a number; NaN for what is none."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
