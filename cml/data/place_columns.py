"""The order of the columns of a place, latitude before longitude, by their names."""

import re
from collections.abc import Sequence

from cml.errors import UserError

_LATITUDES = frozenset({"lat", "latitude"})
_LONGITUDES = frozenset({"lon", "lng", "long", "longitude"})


def is_place_distance(name: str) -> bool:  # name: its name, with or without settings
    """Tell whether a label distance takes places."""
    return name.partition("(")[0].strip() in ("haversine", "place")


def order_place(columns: Sequence[str]) -> tuple[str, ...]:
    """Put latitude before longitude, where the names of columns say which is which."""
    first, second = (re.sub(r"[^a-z].*", "", column.lower()) for column in (*columns, "", "")[:2])
    if first in _LONGITUDES and second in _LATITUDES:
        return (columns[1], columns[0], *columns[2:])
    if first in _LONGITUDES or second in _LATITUDES:
        rule = "The label of a place is latitude, longitude"
        raise UserError(f"{rule}: name the columns in this order. Got {', '.join(columns)}.")
    return tuple(columns)


def describe_order(columns: Sequence[str]) -> str:
    """Say that columns were put into another order than the user's."""
    return f"The label is {', '.join(columns)}, in this order: the columns are taken by their names."
