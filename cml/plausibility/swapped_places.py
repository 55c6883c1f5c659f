"""Swapped places: a few places whose latitude and longitude contradict the order of all others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64
from cml.data.table_columns import is_place_distance
from cml.plausibility.finding import Finding

_MOST_COLUMNS = 16  # a longer label is a vector, whose single numbers say little


@dataclass(frozen=True)
class LabelNumbers:
    """Labels that are numbers, or short vectors of numbers."""

    values: Float64  # (N, K) float64
    columns: Sequence[str]  # the K names of the numbers; "label" where there is one without a name
    items: Sequence[str]  # the N names of the items, for messages
    distance: str = ""  # name of the label distance with its settings, as in a dataset.json; "" if unknown

    def describe_items(self, positions: NDArray[np.intp], column: int) -> list[str]:
        """Write the first items at some positions with their numbers, as in "a.jpg: 2014"."""
        return [f"{self.items[row]}: {self.values[row, column]:g}" for row in positions[:8].tolist()]


def as_label_numbers(
    labels: Sequence[Any],
    *,
    items: Sequence[str] = (),
    # the names of the numbers of a label; by default "label", or "number 1", "number 2" and so on
    columns: Sequence[str] = (),
    distance: str = "",
) -> LabelNumbers | None:  # the columns; None where the labels are no numbers, or vectors of more than 16
    """Convert labels to columns of numbers."""
    try:
        values = np.asarray(labels, np.float64)
    except (TypeError, ValueError):
        return None
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not len(values) or values.shape[1] > _MOST_COLUMNS or not np.isfinite(values).all():
        return None
    width = values.shape[1]
    if len(columns) != width:
        columns = ["label"] if width == 1 else [f"number {place + 1}" for place in range(width)]
    return LabelNumbers(values, columns, items or [f"item {place}" for place in range(len(values))], distance)


_FEWEST = 8  # items
_FENCE = 1.5  # interquartile ranges beyond the quartiles, Tukey's fence
_LEAST = 0.1  # degrees beyond the quartiles, where all places are closer together


def find_swapped_places(labels: LabelNumbers) -> Iterator[Finding]:
    """Find places that lie away from the others, but among them once latitude and longitude are swapped.

    Nothing is said where latitudes and longitudes of most places overlap, as those of the whole earth do.
    """
    places = np.flatnonzero(mark_swapped_places(labels))
    if len(places):
        yield Finding(
            "swapped-places",
            f"latitude and longitude of {len(places)} of {len(labels.values)} places are swapped compared with "
            "those of the others",
            "Swap them in these items.",
            len(places),
            len(labels.values),
            [labels.items[place] for place in places[:8].tolist()],
        )


def mark_swapped_places(labels: LabelNumbers) -> Bools:  # -> (N,)
    """Tell which labels are places with latitude and longitude the other way round than the others."""
    if not is_place_distance(labels.distance) or len(labels.values) < _FEWEST:
        return np.zeros(len(labels.values), bool)
    places = labels.values[:, :2]
    low, high = _fences(places)
    if low[0] <= high[1] and low[1] <= high[0]:  # a latitude may be a longitude
        return np.zeros(len(places), bool)
    is_away = ((places < low) | (places > high)).all(axis=1)
    swapped = places[:, ::-1]
    is_among = ((swapped >= low) & (swapped <= high)).all(axis=1)
    is_swapped: Bools = np.logical_and(is_away, is_among)
    return is_swapped


def _fences(places: Float64) -> tuple[Float64, Float64]:
    """The least and the greatest usual value, (2,) each, of latitudes and longitudes."""
    low, high = np.quantile(places, (0.25, 0.75), axis=0)
    reach = np.maximum(_FENCE * (high - low), _LEAST)
    return low - reach, high + reach
