"""One label of those that several rows give an item, such as those of several raters."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cml.console.messages import say
from cml.data_prep.folder_split import Labelled

_FEWEST = 10  # items with several rows, from which the agreement of rows is estimated


def join_rows(
    items: Iterable[Labelled],
    several: str,  # how: mean, median, list or first; "" where each item has one row
    period: float | None,  # that of angles; None for others
) -> dict[str, Any]:  # what dataset.json records
    """Give each item one label of those of its rows, and say how well they agree."""
    if not several:
        return {}
    items = list(items)
    groups = [(item, np.array([item.label, *item.further], np.float64)) for item in items if item.further]
    for item in items if several == "list" else ():
        item.label = [item.label, *item.further]
    if not groups:
        return {}
    for item, labels in groups:
        if several == "mean" and period is not None:
            turns = labels * (2 * math.pi / period)
            mean = np.arctan2(np.sin(turns).mean(axis=0), np.cos(turns).mean(axis=0)) * (period / (2 * math.pi))
            item.label = (mean % period).tolist()
        elif several in ("mean", "median"):
            joined = labels.mean(axis=0) if several == "mean" else np.median(labels, axis=0)
            item.label = joined.tolist()
    count, most = sum(len(labels) for _, labels in groups), max(len(labels) for _, labels in groups)
    said = f"{len(groups)} items have several rows, {most} at most, {count} in all; their labels are "
    said += {"list": "the lists of all", "first": "those of their first rows"}.get(several, f"their {several}s")
    ceiling = None if period is not None else _estimate_ceiling([labels for _, labels in groups])
    if ceiling is not None:
        said += f". By their agreement, the correlation of predictions with their means can be {ceiling:.2f} at most"
    say(f"{said}.")
    return {"several": {"how": several, "items": len(groups), "rows": count, "ceiling": ceiling}}


def _estimate_ceiling(groups: Sequence[Any]) -> float | None:
    """The root of the reliability of means, by the variance within items and between them (one-way ICC)."""
    if len(groups) < _FEWEST or any(labels.ndim != 1 for labels in groups):
        return None
    within = float(np.mean([labels.var(ddof=1) for labels in groups]))
    rows = float(np.mean([1 / len(labels) for labels in groups]))
    between = float(np.var([labels.mean() for labels in groups], ddof=1))
    return math.sqrt(max(0.0, 1 - within * rows / between)) if between > 0 else None
