"""Constant labels: all items have the same one, so that there is nothing to learn."""

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.plausibility.finding import Finding
from cml.plausibility.label_numbers import LabelNumbers

_MEND = "Nothing can be learned from them: name another column of labels."


def find_equal_labels(labels: Sequence[Any] | NDArray[Any]) -> Iterator[Finding]:
    """Find labels that are no numbers, such as texts, lists of texts and poses, and all equal."""
    count = len(labels)
    if count < 2:
        return
    first = labels[0]
    if isinstance(labels, np.ndarray):
        are_equal, first = bool((labels == first).all()), first.tolist()
    else:
        is_plain = isinstance(first, str | list | dict)  # others may compare by elements
        are_equal = is_plain and all(type(label) is type(first) and label == first for label in labels)
    if are_equal:
        yield Finding("constant-labels", f"all {count} labels are equal, {reprlib.repr(first)}", _MEND, count, count)


def find_constant_labels(labels: LabelNumbers) -> Iterator[Finding]:
    """Find labels that are all equal, or a number of the label that is the same in all."""
    count = len(labels.values)
    if count < 2:
        return
    constant = (labels.values == labels.values[0]).all(axis=0)
    names = [name for name, is_constant in zip(labels.columns, constant.tolist(), strict=True) if is_constant]
    if constant.all():
        value = " ".join(f"{number:g}" for number in labels.values[0])
        yield Finding("constant-labels", f"all {count} labels are equal, {value}", _MEND, count, count)
    elif names:
        yield Finding(
            "constant-labels",
            f"{', '.join(map(repr, names))} is the same number in all {count} labels",
            "It does not change any label distance: leave it out, or correct it.",
            count,
            count,
        )
