"""The columns of a table of judgements, and the numbers of the items that its rows name."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64, Int64
from cml.data.tensor_array import tensor_array
from cml.errors import DataError, UserError
from cml.storage.unicode_forms import look_up

_NAMED = 5  # items that a remark names


class JudgementColumns:
    """The columns of a table of judgements.

    Args:
        rows: A data frame, a mapping of columns, or an array (J, C) of numbers, whose columns are ``names`` in order.
        names: The columns that judgements of this kind may have.
        required: How many of the first ``names`` each table has.
        title: What the table is, for messages: "the judged pairs".
        places: What each row is called in messages, such as "pairs.csv:7"; None for its number in ``title``.
        faults: Gets what is wrong with a row, which is then left out; None raises it.

    Attributes:
        places: What each row is called.
        kept: (J,) which rows were not left out so far.

    Raises:
        UserError: A column is missing or unknown, or columns differ in length.
    """

    def __init__(
        self,
        rows: Any,  # noqa: ANN401 - the kinds listed above
        names: Sequence[str],
        required: int,
        title: str,
        places: Sequence[str] | None = None,
        faults: list[DataError] | None = None,
    ) -> None:
        if hasattr(rows, "columns") or isinstance(rows, Mapping):
            there = [str(name) for name in (rows if isinstance(rows, Mapping) else rows.columns)]
            columns = {name: _as_list(rows[name]) for name in there if name in names}
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
                f"{title.capitalize()} have no column {missing[0]!r}. There are: {', '.join(there)}; rename yours to "
                f"{', '.join(names[:required])}."
            )
        counts = {len(column) for column in columns.values()}
        if len(counts) > 1 or counts == {0}:
            raise UserError(f"{title.capitalize()} should have rows, and columns of one length. Got {sorted(counts)}.")
        self._columns, self._faults = columns, faults
        (count,) = counts
        self.places = [f"row {row} of {title}" for row in range(count)] if places is None else places
        self.kept = np.ones(count, np.bool_)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def refuse(self, row: int, fault: str) -> None:
        """Leave out a row, or raise what is wrong with it.

        Args:
            row: Its number.
            fault: What is wrong, to follow the name of the row.

        Raises:
            DataError: Faults are not collected.
        """
        place = self.places[row]
        start = "Row" + place.removeprefix("row") if place.startswith("row ") else place  # not the name of a file
        error = DataError(f"{start} {fault}" if self._faults is None else f"{place}: {fault}")
        if self._faults is None:
            raise error
        if self.kept[row]:
            self._faults.append(error)
        self.kept[row] = False

    def items(self, name: str, numbers: Mapping[Any, int]) -> Int64:
        """Read a column of items. A name may be in another Unicode normal form than that of the item.

        Args:
            name: Name of the column.
            numbers: Item to its number.

        Returns:
            (J,) numbers; -1 for a row that is left out.

        Raises:
            DataError: A row names an unknown item.
        """
        found = np.full(len(self.kept), -1)
        for row, value in enumerate(self[name]):
            if isinstance(value, str):
                number = look_up(value, numbers)
            else:
                number = numbers.get(value if isinstance(value, int) else _whole(value))
            if number is None:
                known = f"none of the {len(numbers):,} items"
                known += f", such as {next(iter(numbers))!r}" if numbers else ""
                mend = "" if numbers else ". Give 'items', the names of all items in order"
                self.refuse(row, f"names the {name} {value!r}, which is {known}{mend}.")
            else:
                found[row] = number
        return found

    def numbers(self, name: str, rule: str, allowed: Callable[[float], bool]) -> Float64:
        """Read a column of numbers.

        Args:
            name: Name of the column.
            rule: What the numbers should be, for messages.
            allowed: Whether a finite number may be there.

        Returns:
            (J,); 0 for a row that is left out.

        Raises:
            DataError: A row holds something else.
        """
        values = np.zeros(len(self.kept))
        for row, cell in enumerate(self[name]):
            number = _float(cell)
            if math.isfinite(number) and allowed(number):
                values[row] = number
            else:
                self.refuse(row, f"has the {name} {cell!r}, which should be {rule}.")
        return values


def number_items(items: Sequence[Any] | int | None, named: Iterable[Sequence[Any]]) -> dict[Any, int]:
    """Number the items that judgements may name.

    Args:
        items: Their names in order, or how many there are; None for as many as the largest number that is named and 1.
        named: The columns that name items.

    Returns:
        Name to number; items without names are called by their numbers.

    Raises:
        UserError: An item is there twice.
    """
    if items is None:
        largest = max((_whole(value) for column in named for value in column), default=-1)
        items = largest + 1
    if isinstance(items, int | np.integer):
        return {number: number for number in range(int(items))}
    numbers = {_plain(item): number for number, item in enumerate(items)}
    if len(numbers) < len(items):
        counts = Counter(map(_plain, items))
        twice = next(item for item, count in counts.items() if count > 1)
        raise UserError(f"'items' should name each item once. Got {twice!r} twice.")
    return numbers


def describe_unjudged(numbers: Mapping[Any, int], judged: Iterable[int]) -> list[str]:
    """Name the items without any judgement, from which nothing is learned.

    Args:
        numbers: Name to number of all items.
        judged: Numbers of those that a judgement names.

    Returns:
        A line, or none.
    """
    known = set(judged)
    left = [name for name, number in numbers.items() if number not in known]
    if not left:
        return []
    names = ", ".join(map(str, left[:_NAMED])) + (", ..." if len(left) > _NAMED else "")
    return [f"{len(left)} of {len(numbers)} items have no judgement and are left out: {names}"]


def _as_list(column: Any) -> list[Any]:  # noqa: ANN401 - a column of any frame
    if hasattr(column, "detach"):
        column = tensor_array(column)
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
