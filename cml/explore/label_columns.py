"""Labels as columns that the maps can be coloured by."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import LabelDistance

Columns = dict[str, tuple[NDArray[Any], float | None]]
"""Name of a column to its values (N,) and their period, or None if they have none."""
_MOST_COLUMNS = 8  # of a vector


def label_columns(name: str, labels: Sequence[Any], distance: LabelDistance) -> Columns:
    """Split labels into columns of numbers or texts."""
    from cml.distances import as_label_distance
    from cml.distances.circular import Circular
    from cml.distances.combined import Combined

    first = labels[0]
    if isinstance(first, Mapping):
        parts = distance.parts if isinstance(distance, Combined) else {}
        columns: Columns = {}
        for part in first:
            part_distance = as_label_distance(parts[part]) if part in parts else distance
            columns |= label_columns(f"{name} {part}", [label.get(part) for label in labels], part_distance)
        return columns
    if all(isinstance(label, str) for label in labels):
        return {name: (np.array(labels, object), None)}
    try:
        values = np.asarray(labels, np.float64)
    except (TypeError, ValueError):
        return {}
    period = float(distance.period) if isinstance(distance, Circular) else None
    if values.ndim == 1:
        return {name: (values, period)}
    if values.ndim == 2 and values.shape[1] <= _MOST_COLUMNS:
        return {f"{name} {number}": (column, period) for number, column in enumerate(values.T, 1)}
    return {}
