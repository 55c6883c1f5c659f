"""All rules that look at labels alone."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from cml.plausibility.constant_labels import find_constant_labels, find_equal_labels
from cml.plausibility.finding import Finding, Rule
from cml.plausibility.label_numbers import LabelNumbers, as_label_numbers
from cml.plausibility.outliers import find_outliers
from cml.plausibility.radians import find_radians
from cml.plausibility.sentinels import find_sentinels
from cml.plausibility.swapped_places import find_swapped_places

LABEL_RULES: Mapping[Rule, Callable[[LabelNumbers], Iterator[Finding]]] = {
    "constant-labels": find_constant_labels,
    "sentinels": find_sentinels,
    "outliers": find_outliers,
    "radians": find_radians,
    "swapped-places": find_swapped_places,
}


def find_in_labels(
    # N labels of any kind. If they are no numbers, nor short vectors of numbers, only equal ones are found
    labels: Sequence[Any],
    *,
    items: Sequence[str] = (),
    columns: Sequence[str] = (),
    distance: str = "",
    skip: Collection[str] = (),
) -> list[Finding]:
    """Find what is suspicious about labels.

    Example:
        >>> ages = [25, 31, 44, 19, 52, 38, 61, 47, 29, 33, 2014]
        >>> [finding.rule for finding in find_in_labels(ages)]
        ['outliers']
    """
    numbers = as_label_numbers(labels, items=items, columns=columns, distance=distance)
    if numbers is None:
        return [] if "constant-labels" in skip else list(find_equal_labels(labels))
    return [finding for rule, find in LABEL_RULES.items() if rule not in skip for finding in find(numbers)]
