"""Lists of attributes. Not for: sets of names in any order (jaccard)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.distances.name_sets import count_shared, pack_sets
from cml.errors import UserError


@dataclass(frozen=True)
class Hamming(LabelDistance):
    """The share of the places at which two equally long lists differ, from 0 to 1.

    Labels are lists of numbers, texts or booleans, compared for equality: 1, 1.0 and true are equal, "1" is another
    value.

    Example:
        >>> distance = Hamming()
        >>> birds = distance.encode([["red", 1, 0, 1], ["red", 0, 0, 1]])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 0.25]]
    """

    name: ClassVar[str] = "hamming"
    unit: ClassVar[str] = "share of differing places"
    is_metric: ClassVar[bool] = True

    def encode(self, labels: Sequence[Any]) -> Labels:  # the arrays of ``pack_sets``, of the pairs (place, value)
        """Check and pack lists of values."""
        rows: list[list[str]] = []
        for position, label in enumerate(labels):
            values = label.tolist() if isinstance(label, np.ndarray) else label
            if not isinstance(values, list | tuple) or not values:
                raise LabelError(position, f"should be a list of values. Got {short(label)} instead.")
            if rows and len(values) != len(rows[0]):
                raise LabelError(position, f"has {len(values)} values, the first has {len(rows[0])}.")
            rows.append([f"{place} {_value_text(value, position)}" for place, value in enumerate(values)])
        return pack_sets(rows)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        length, other = int(a.arrays["size"][0]), int(b.arrays["size"][0])
        if length != other:
            raise UserError(f"The labels of the two sides differ in length: {length} values against {other}.")
        return ((length - count_shared(a, b).astype(np.float64)) / length).astype(np.float32)


def _value_text(value: Any, position: int) -> str:  # noqa: ANN401 - checked here
    """Write a value as a text, equal exactly if the values are."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str):
        return f"text {value}"
    if isinstance(value, bool | int) or (isinstance(value, float) and value.is_integer()):
        return f"number {int(value)}"
    if isinstance(value, float) and np.isfinite(value):
        return f"number {value!r}"
    raise LabelError(position, f"holds {short(value)}, which is neither a finite number, a text nor a boolean.")
