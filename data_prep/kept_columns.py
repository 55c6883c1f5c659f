"""Further columns of a user's table that are kept with the items: ``--keep-columns``."""

import math
from collections.abc import Sequence
from typing import Any

from cml.data_prep.folder_split import Labelled
from cml.data_prep.row_files import Row, cell

_NONE: dict[str, Any] = {}  # which a million rows share


def read_kept(row: Row, columns: Sequence[str], where: str) -> dict[str, Any]:
    """Read the kept columns of a row."""
    if not columns:
        return _NONE
    return {column: cell(row, column, where, option="--keep-columns") for column in columns}


def unify_columns(items: Sequence[Labelled]) -> None:  # items: the items, at least one, whose ``extra`` is changed
    """Give each kept column one type: numbers if all of its cells are numbers, else texts."""
    for column in items[0].extra:
        values = [item.extra[column] for item in items]
        numbers = [_finite(value) for value in values]
        is_number = all(value is not None for value in numbers)
        for item, plain, value in zip(items, numbers, values, strict=True):
            item.extra[column] = plain if is_number else "" if value is None else str(value)


def _finite(value: Any) -> float | None:  # noqa: ANN401 - a cell
    """A cell as a finite number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        result = float(value)
    except (ValueError, OverflowError):
        return None
    return result if math.isfinite(result) else None
