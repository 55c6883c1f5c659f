"""Outliers: a few labels far away from all others, such as the age 2014."""

from collections.abc import Iterator

import numpy as np

from cml.array_types import Bools, Float64
from cml.plausibility.finding import Finding
from cml.plausibility.label_numbers import LabelNumbers
from cml.plausibility.sentinels import find_markers
from cml.plausibility.swapped_places import mark_swapped

_FEWEST = 10  # items; of fewer, nobody can say what is far away
_MANY = 100  # items; of fewer, chance throws some farther
_MOST = 0.01  # share of all labels; more of them are a heavy tail
_FAR, _FAR_OF_FEW, _FAR_IN_LOGARITHM = 8.0, 20.0, 4.0  # interquartile ranges from the median
_GAP, _GAP_OF_SIGNED = 2.5, 6.0  # how many times as far away from the median as the farthest of the others
_BELOW_ZERO, _BELOW_ZERO_OF_FEW = 0.5, 0.75  # shares of the median of positive labels


def find_outliers(labels: LabelNumbers) -> Iterator[Finding]:
    """Find a few labels that lie far away from all others, on a plain and on a logarithmic scale.

    They lie 8 interquartile ranges or more from the median, are at most 1 % of the labels, and a gap separates them:
    they are 2.5 times as far away as all others. More is asked of fewer than 100 labels and of labels of both signs.
    Where no label is negative the same is asked of the logarithms of the positive ones with 4 ranges, since prices and
    sizes spread over powers. A single negative number among positive ones that are well above zero is found too.
    """
    if labels.distance.startswith(("circular", "rotation", "classes")) or len(labels.values) < _FEWEST:
        return
    kept = np.flatnonzero(~mark_swapped(labels))  # the others have a finding of their own
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        places = kept[_are_outliers(values[kept])]
        if len(places):
            middle = np.quantile(np.delete(values, places), (0.05, 0.95))
            yield Finding(
                "outliers",
                f"{len(places)} of {len(values)} numbers in {name!r} lie far away from the others, of which 90 % lie "
                f"from {middle[0]:g} to {middle[1]:g}",
                "Correct them, or leave these items out.",
                len(places),
                len(values),
                labels.describe_items(places, column),
            )


def _are_outliers(values: Float64) -> Bools:
    """(N,) whether each value is an outlier; sentinels, which have a finding of their own, are not."""
    known = ~np.isin(values, find_markers(values))
    found = np.zeros(len(values), bool)
    most = max(1, int(_MOST * len(values)))
    is_many = len(values) >= _MANY
    negative = known & (values < 0)
    if 0 < negative.sum() <= most:
        others = values[known & ~negative]
        middle = float(np.median(others))
        is_above = len(others) >= _FEWEST - 1 and others.min() > middle / 4
        if is_above and -values[negative].max() > (_BELOW_ZERO if is_many else _BELOW_ZERO_OF_FEW) * middle:
            found |= negative
    rest = known & ~found
    has_signs = bool((values[rest] < 0).any())
    gap = _GAP if is_many and not has_signs else _GAP_OF_SIGNED
    far = _are_far(values, rest, _FAR if is_many else _FAR_OF_FEW, gap, most)
    if far.any() and not has_signs:
        positive = rest & (values > 0)
        far &= _are_far(np.log(np.where(positive, values, 1)), positive, _FAR_IN_LOGARITHM, _GAP, most)
    return found | far


def _are_far(values: Float64, rest: Bools, ranges: float, gap: float, most: int) -> Bools:
    """(N,) whether each of the values that ``rest`` marks belongs to the largest group that a gap sets apart."""
    far = np.zeros(len(values), bool)
    low, middle, high = np.quantile(values[rest], (0.25, 0.5, 0.75))
    if high == low:
        return far
    away = np.where(rest, np.abs(values - middle), 0)
    order = np.argsort(-away)
    farthest = away[order[: most + 1]]
    is_apart = (farthest[:-1] > gap * farthest[1:]) & (farthest[:-1] > ranges * (high - low))
    size = int(np.flatnonzero(is_apart)[-1]) + 1 if is_apart.any() else 0
    far[order[:size]] = True
    return far
