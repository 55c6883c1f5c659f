"""The columns of items that pages show: labels as numbers or texts, and further columns of metadata.jsonl."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import LabelDistance

Columns = dict[str, tuple[NDArray[Any], float | None]]
"""Name of a column to its values (N,) and their period, or None if they have none."""
_MOST_OF_A_VECTOR = 8  # of a vector


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
    if values.ndim == 2 and values.shape[1] <= _MOST_OF_A_VECTOR:
        return {f"{name} {number}": (column, period) for number, column in enumerate(values.T, 1)}
    return {}


_MOST_COLUMNS = 24  # that a page shows
_MOST_COLOURS = 40  # different texts of a column to colour by


def further_columns(entries: Sequence[Mapping[str, Any]]) -> tuple[Columns, dict[str, list[str]]]:
    """Collect the columns of items in which all have numbers, or texts.

    Returns columns to colour by: numbers, NaN where one is missing, and texts of at most 40 kinds. And columns of more
    kinds of texts: name to N texts, "" where one is missing. Lists and objects are left out.
    """
    columns: Columns = {}
    texts: dict[str, list[str]] = {}
    for name in dict.fromkeys(name for entry in entries for name in entry):
        values = [entry.get(name) for entry in entries]
        kinds = {type(value) for value in values if value is not None}
        if not kinds or len(columns) + len(texts) == _MOST_COLUMNS:
            continue
        if kinds <= {int, float}:
            numbers = [np.nan if value is None else value for value in values]
            columns[name] = (np.array(numbers, np.float64), None)
        elif kinds <= {str, bool}:
            words = ["" if value is None else str(value) for value in values]
            if len(set(words)) <= _MOST_COLOURS:
                columns[name] = (np.array(words, object), None)
            else:
                texts[name] = words
    return columns, texts
