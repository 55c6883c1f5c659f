"""Sentinels: numbers such as -1 or -999 that stand for a label that is not known."""

from collections.abc import Iterator

import numpy as np

from cml.array_types import Float64
from cml.plausibility.finding import Finding
from cml.plausibility.label_numbers import LabelNumbers

_LOW = (0, -1, -9, -99, -999, -9999, -99999)
_HIGH = (99, 999, 9999, 99999)
_FEW_VALUES = 10  # different numbers; of fewer, such as ratings from -1 to 1, an end says nothing
_FINE = 30  # different numbers; of fewer, such as ratings from -1 to 20, a lone negative one says nothing
_TURN = 360  # degrees
_GAP_OF_ZERO, _GAP = 0.15, 0.5  # distance to the next number as a share of the range of the others


def find_sentinels(labels: LabelNumbers) -> Iterator[Finding]:
    """Find numbers that recur exactly, at an end of the range and away from all others.

    A negative one is also found where all others are at least 0. Of angles, any number within a turn is usual. Of
    places, latitude and longitude 0 are found anywhere.
    """
    if labels.distance.startswith("classes"):
        return
    if labels.distance.startswith(("haversine", "place")) and (found := _find_null_island(labels)):
        yield found
        return
    is_angle = labels.distance.startswith(("circular", "rotation"))
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        for marker in find_markers(values):
            if is_angle and abs(marker) <= _TURN:
                continue
            places = np.flatnonzero(values == marker)
            yield Finding(
                "sentinels",
                f"{len(places)} of {len(values)} numbers in {name!r} are exactly {marker:g}, away from all others",
                "If that stands for an unknown label, leave these items out.",
                len(places),
                len(values),
                [labels.items[place] for place in places[:8].tolist()],
            )


def _find_null_island(labels: LabelNumbers) -> Finding | None:
    """Places at latitude and longitude 0, in the sea, where others are elsewhere."""
    places = np.flatnonzero((labels.values[:, :2] == 0).all(axis=1))
    if not 1 < len(places) < len(labels.values):
        return None
    return Finding(
        "sentinels",
        f"{len(places)} of {len(labels.values)} places are exactly at latitude 0 and longitude 0",
        "If that stands for an unknown place, leave these items out.",
        len(places),
        len(labels.values),
        [labels.items[place] for place in places[:8].tolist()],
    )


def find_markers(
    values: Float64,  # (N,) the numbers
) -> list[float]:  # the sentinels, at most two
    """Find the numbers that stand for unknown labels in a column."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) <= _FEW_VALUES:
        return []
    found = []
    low, high = float(distinct[0]), float(distinct[-1])
    if low in _LOW and counts[0] > 1:
        rest = distinct[1:]
        gap, spread = float(rest[0]) - low, float(rest[-1] - rest[0])
        is_alone = gap > (_GAP if low else _GAP_OF_ZERO) * spread
        if is_alone or (low < 0 <= rest[0] and len(distinct) > _FINE):
            found.append(low)
    if high in _HIGH and counts[-1] > 1:
        rest = distinct[:-1]
        if high - float(rest[-1]) > _GAP * float(rest[-1] - rest[0]):
            found.append(high)
    return found
