"""The labels of a dataset as columns of numbers, where they are numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64

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
