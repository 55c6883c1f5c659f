"""Columns of a data frame of any library as numbers: pandas, polars, Arrow and Hugging Face data sets."""

import fnmatch
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Floating
from cml.data.dataset_items import column_names, has_columns
from cml.data.input_form import FieldNames
from cml.data.vocabulary import find_meanings, means
from cml.errors import UserError, did_you_mean


def select_columns(
    frame: Any,  # noqa: ANN401 - a frame of any library
    # a list of names, the name of one column, a pattern such as ``emb_*``, or what the names begin with
    features: str | Sequence[str],
) -> list[str]:
    """Select columns by their names, a pattern or a prefix."""
    return match_columns(column_names(frame), features)


def match_columns(names: Sequence[str], features: str | Sequence[str]) -> list[str]:
    """Select names of columns; as ``select_columns``."""
    there = f"There are: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
    if not isinstance(features, str):
        for name in features:
            if name not in names:
                raise UserError(f"The data has no column {name!r}.{did_you_mean(str(name), names)} {there}")
        if not features:
            raise UserError(f"'features' names no column. {there}")
        return list(features)
    if features in names:
        return [features]
    chosen = fnmatch.filter(names, features) or [name for name in names if name.startswith(features)]
    if not chosen:
        raise UserError(
            f"The data has no column that matches features={features!r}.{did_you_mean(features, names)} {there}"
        )
    return chosen


def numeric_columns(
    frame: Any,  # noqa: ANN401 - anything
    fields: FieldNames,
) -> list[str]:
    """List all columns of a frame beside that of labels if they hold numbers and none was named; none of others."""
    if fields.features is not None or fields.image is not None or not hasattr(frame, "dtypes"):
        return []
    if not has_columns(frame):
        return []
    names = [name for name in column_names(frame) if name != fields.label]
    return names if all(_holds_numbers(frame[name].dtype) for name in names) else []


def _holds_numbers(dtype: Any) -> bool:  # noqa: ANN401 - of pandas or polars
    is_numeric = getattr(dtype, "is_numeric", None)  # of polars
    return bool(is_numeric()) if callable(is_numeric) else getattr(dtype, "kind", "O") in "fiu"


def read_numbers(
    frame: Any,  # noqa: ANN401 - as above
    names: Sequence[str],
) -> tuple[Floating, tuple[str, ...]]:
    """Read columns of numbers, or one column of lists of numbers, as vectors.

    Returns the vectors, (N, F) float32 or float64, NaN where a number is missing; and a name for each of the F numbers,
    none where they come from one column of lists.
    """
    columns = [_column_array(frame[name], name) for name in names]
    if len(columns) == 1 and columns[0].ndim == 2:
        return columns[0], ()
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1:
            raise UserError(f"The column {name!r} holds lists: give it alone, as features={name!r}.")
    return np.stack(columns, axis=1), tuple(names)


def stack_rows(rows: Sequence[Any], where: str) -> Floating:  # (N, F) float64, or float32 if all rows are
    """Stack rows of numbers to an array."""
    arrays: list[Floating] = []
    for row, values in enumerate(rows):
        try:
            array = np.asarray(values)
            array = array if array.dtype.kind == "f" else array.astype(np.float64)
        except (TypeError, ValueError):
            raise UserError(f"Row {row} of {where} must be numbers. Got {values!r:.80} instead.") from None
        if array.ndim != 1 or (arrays and len(array) != len(arrays[0])):
            wanted = f"{len(arrays[0])} numbers, as row 0 has" if arrays else "a list of numbers"
            got = f"{len(array)} numbers" if array.ndim == 1 else f"the shape {array.shape}"
            raise UserError(f"Row {row} of {where} must be {wanted}. Got {got} instead.")
        arrays.append(array)
    return np.stack(arrays) if arrays else np.empty((0, 1))


def _column_array(column: Any, name: str) -> Floating:  # noqa: ANN401 - of any library
    """A column as floats: (N,), or (N, F) for one of lists."""
    array = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if array.dtype.kind == "f":
        return array
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    values = array.tolist()
    present = [value for value in values if value is not None]
    if present and hasattr(present[0], "__len__") and not isinstance(present[0], str | bytes):
        for row, value in enumerate(values):
            if value is None:
                raise UserError(f"Row {row} of the column {name!r} is missing: leave the row out.")
        return stack_rows(values, f"the column {name!r}")
    numbers = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is None or type(value).__name__ == "NAType":
            continue
        if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
            raise UserError(
                f"Row {row} of the column {name!r} must be a number. Got {value!r:.80} instead; leave the column out, "
                "or convert it to numbers."
            )
        numbers[row] = float(value)
    return numbers


def is_place_distance(name: str) -> bool:  # name: its name, with or without settings
    """Tell whether a label distance takes latitude and longitude."""
    return name.partition("(")[0].strip() in ("haversine", "place") and "metres" not in re.sub("metres=", "", name)


def order_place(columns: Sequence[str]) -> tuple[str, ...]:
    """Put latitude before longitude, by what the names of columns say; names that leave the order open are refused."""
    found = find_meanings(columns, ("latitude", "longitude"))
    if len(columns) == 1 and re.match(r"(.*[^a-z])?lat(itude)?[^a-z]*(lon|lng|long|longitude)?$", columns[0].lower()):
        return tuple(columns)
    if len(set(found.values())) == len(("latitude", "longitude")):
        rest = [column for column in columns if column not in found.values()]
        if rest and means(rest[0], "altitude"):
            fault = f"the heading, but {rest[0]!r} is called an altitude"
            raise UserError(f"The third number of a place is {fault}: leave it out, or name the column of headings.")
        return (found["latitude"], found["longitude"], *rest)
    rule = "The label of a place is latitude, longitude"
    if any(means(column, "map metres") for column in columns):
        fault = f"{rule} in degrees, and {', '.join(map(repr, columns))} are called metres on a map"
        raise UserError(f"{fault}: compare them by the label distance 'euclidean', or convert them to degrees.")
    if found and len(columns) > 1:
        raise UserError(f"{rule}: name the columns in this order. Got {', '.join(columns)}.")
    one, other = columns[:2] if len(columns) > 1 else (f"{columns[0]}.1", f"{columns[0]}.0")
    raise UserError(
        f"{rule}, and the name of {', '.join(map(repr, columns))} does not say which is which; x and GeoJSON's first "
        f"number are longitudes. Say it by --label-columns latitude={one} longitude={other}, or the other way round "
        "(in a data frame, by the names of its columns)."
    )


def describe_order(columns: Sequence[str]) -> str:
    """Say that columns were put into another order than the user's."""
    return f"The label is {', '.join(columns)}, in this order: the columns are taken by their names."
