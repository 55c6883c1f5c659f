"""Constant labels: all items have the same one, so that there is nothing to learn."""

from collections.abc import Iterator

from cml.plausibility.finding import Finding
from cml.plausibility.label_numbers import LabelNumbers


def find_constant_labels(labels: LabelNumbers) -> Iterator[Finding]:
    """Find labels that are all equal, or a number of the label that is the same in all.

    Args:
        labels: The labels.

    Yields:
        One finding for all numbers that are constant.
    """
    count = len(labels.values)
    if count < 2:
        return
    constant = (labels.values == labels.values[0]).all(axis=0)
    names = [name for name, is_constant in zip(labels.columns, constant.tolist(), strict=True) if is_constant]
    if constant.all():
        value = " ".join(f"{number:g}" for number in labels.values[0])
        yield Finding(
            "constant-labels",
            f"all {count} labels are equal, {value}",
            "Nothing can be learned from them: name another column of labels.",
            count,
            count,
        )
    elif names:
        yield Finding(
            "constant-labels",
            f"{', '.join(map(repr, names))} is the same number in all {count} labels",
            "It does not change any label distance: leave it out, or correct it.",
            count,
            count,
        )
