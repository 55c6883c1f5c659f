"""Further columns of metadata.jsonl: numbers and texts of the items, beside their labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cml.explore.label_columns import Columns

_MOST_COLUMNS = 24  # that the page shows
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
