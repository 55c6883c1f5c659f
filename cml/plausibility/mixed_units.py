"""Mixed units: a part of the numbers is 100 or 1,000 times as large, such as percentages among fractions."""

from collections.abc import Iterator

import numpy as np

from cml.array_types import Float64
from cml.plausibility.finding import Finding
from cml.plausibility.swapped_places import LabelNumbers

_FACTORS = (100, 1000)  # percentages and fractions, centimetres and metres; metres and kilometres
_FEWEST, _LEAST = 15, 0.05  # items of either part, and their share of all
_VALUES = 3  # different numbers of a part; fewer are classes
_GAP = 3.0  # how many times as large as the largest smaller number the least larger one is
_WIDER = 2.0  # than any gap between smaller numbers; those of a geometric series are all alike
_APART, _CHANCE = 0.25, 0.05  # largest difference of the two distributions, and least probability of a larger one


def find_mixed_units(labels: LabelNumbers) -> Iterator[Finding]:
    """Find positive numbers in two parts that a gap separates, the larger ones spread like multiples of the smaller."""
    if labels.distance.startswith(("circular", "rotation", "classes")):
        return
    for column, name in enumerate(labels.columns):
        values = labels.values[:, column]
        if (values < 0).any():
            continue
        sizes = np.sort(values[values > 0])
        start = _find_gap(sizes)
        if not start:
            continue
        low, high = sizes[:start], sizes[start:]
        factor = next((factor for factor in _FACTORS if _are_spread_alike(low, high / factor)), None)
        if factor is not None:
            places = np.flatnonzero(values >= high[0])
            yield Finding(
                "mixed-units",
                f"{len(high)} of {len(values)} numbers in {name!r} lie from {high[0]:g} to {high[-1]:g}, and all "
                f"others are at most {low[-1]:g}. Divided by {factor}, they are spread like the others, so that two "
                "units seem to be mixed",
                "Write all of them in one unit.",
                len(high),
                len(values),
                labels.describe_items(places, column),
            )


def _find_gap(sizes: Float64) -> int:  # sizes (P,) ascending; the start of the larger part, or 0
    """Find where the larger part begins."""
    fewest = max(_FEWEST, int(_LEAST * len(sizes)))
    if len(sizes) < 2 * fewest:
        return 0
    ratios = sizes[1:] / sizes[:-1]
    start = fewest + int(ratios[fewest - 1 : len(sizes) - fewest].argmax())
    return start if ratios[start - 1] >= max(_GAP, _WIDER * ratios[: start - 1].max()) else 0


def _are_spread_alike(low: Float64, high: Float64) -> bool:
    """Whether two samples may be of one distribution, by the test of Kolmogorov and Smirnov."""
    if len(np.unique(low)) < _VALUES or len(np.unique(high)) < _VALUES:
        return False
    if not 0.5 < np.median(low) / np.median(high) < 2:  # most labels: without SciPy's statistics, which load slowly
        return False
    from scipy.stats import ks_2samp

    test = ks_2samp(low, np.round(high, 12), method="asymp")
    return bool(test.statistic <= _APART and test.pvalue >= _CHANCE)
