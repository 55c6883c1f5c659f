"""Numbers that are codes of something else by their names or digits, such as dates and numbers of classes."""

from collections.abc import Iterator
from datetime import date

import numpy as np

from cml.array_types import Float64
from cml.data.vocabulary import split_words
from cml.plausibility.finding import Finding
from cml.plausibility.swapped_places import LabelNumbers

_FEWEST = 8  # items
_CLASSES = frozenset({"class", "category", "cluster", "species", "breed"})
_NUMBERED = frozenset({"id", "idx", "index", "no", "number"})
_RECUR = 2  # items of a class, at the mean


def find_codes(labels: LabelNumbers) -> Iterator[Finding]:
    """Find dates that are written as one number, and numbers of classes, that are compared as plain numbers."""
    if labels.distance.partition("(")[0] not in ("", "euclidean") or len(labels.values) < _FEWEST:
        return
    for column, name in enumerate(labels.columns):
        values, count = labels.values[:, column], len(labels.values)
        if _are_dates(values):
            yield Finding(
                "codes",
                f"all {count} numbers in {name!r} read as dates, from {values.min():.0f} to {values.max():.0f}, but "
                "are compared as plain numbers, so a month counts as 100 days",
                "If they are dates, convert them to days since a fixed one.",
                count,
                count,
            )
        elif _are_classes(name, values):
            yield Finding(
                "codes",
                f"{name!r} sounds like a class and has {len(np.unique(values))} distinct whole numbers, compared as "
                "plain numbers, so class 1 is nearer to 2 than to 3",
                "If they only name classes, take --kind classes.",
                count,
                count,
            )


def _are_dates(values: Float64) -> bool:
    """Whether all numbers are days of the calendar such as 20231231, of more months than one."""
    if not ((values >= 19000101) & (values <= 21001231) & (values % 1 == 0)).all():
        return False
    days = np.unique(values).astype(int).tolist()
    try:
        months = {date(day // 10000, day // 100 % 100, day % 100).replace(day=1) for day in days}
    except ValueError:
        return False
    return len(months) > 1


def _are_classes(name: str, values: Float64) -> bool:
    words = split_words(name)
    is_named = bool(words) and (words[-1] in _CLASSES or (len(words) > 1 and words[-1] in _NUMBERED))
    different = np.unique(values)
    is_whole = bool((different % 1 == 0).all() and different[0] >= 0)
    return is_named and is_whole and _RECUR < len(different) <= len(values) / _RECUR
