"""Lists of attributes. Not for: sets of names in any order (jaccard)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32
from cml.distances.known_parts import (
    Unknown,
    check_parts,
    is_unknown,
    leave_out_defaults,
    sum_known_places,
    weigh_places,
)
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, check_same_length, short
from cml.distances.name_sets import count_shared, pack_sets
from cml.errors import UserError


@dataclass(frozen=True)
class Hamming(LabelDistance):
    """The share of the places at which two equally long lists differ, from 0 to 1; by weight where they have weights.

    Labels are lists of numbers, texts or booleans, compared for equality: 1, 1.0 and true are equal, "1" is another
    value. With ``missing="skip"``, the share is that of the places that both labels know; without such a place labels
    cannot be compared: infinity.

    Args:
        missing: "skip" where None or NaN says that a value is not known; "refuse" makes it an error.
        weights: What each place counts, above 0; 1 each when not given.

    Example:
        >>> distance = Hamming()
        >>> birds = distance.encode([["red", 1, 0, 1], ["red", 0, 0, 1]])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 0.25]]
        >>> distance = Hamming(missing="skip")
        >>> birds = distance.encode([["red", 1], ["red", None], [None, 0]])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 0.0, 1.0]]
    """

    missing: Unknown = "refuse"
    weights: tuple[float, ...] | None = None

    name: ClassVar[str] = "hamming"
    unit: ClassVar[str] = "share of differing places"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self.missing, self.weights)

    @property
    def is_metric(self) -> bool:
        """True unless places are left out."""
        return self.missing == "refuse"

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Check and pack lists of values.

        Returns the arrays of ``pack_sets``, of the pairs (place, value); where places have weights or may be unknown,
        ``codes`` (N, P) uint64 that are equal where values are, 0 where unknown.
        """
        rows: list[list[str]] = []
        for position, label in enumerate(labels):
            values = label.tolist() if isinstance(label, np.ndarray) else label
            if not isinstance(values, list | tuple) or not values:
                raise LabelError(position, f"should be a list of values. Got {short(label)} instead.")
            if rows and len(values) != len(rows[0]):
                raise LabelError(position, f"has {len(values)} values, the first has {len(rows[0])}.")
            skips = self.missing == "skip"
            rows.append(["" if skips and is_unknown(value) else _value_text(value, position) for value in values])
        if self.missing == "refuse" and self.weights is None:
            return pack_sets([[f"{place} {text}" for place, text in enumerate(texts)] for texts in rows])
        weigh_places(self.weights, len(rows[0]))
        return Labels({"codes": np.array([[_code(text) for text in texts] for texts in rows], np.uint64)})

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them, without those that are not used."""
        return leave_out_defaults(super().settings(), "missing", "weights")

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        if "codes" in a.arrays:
            left, right = a.arrays["codes"], b.arrays["codes"]
            check_same_length(left, right)
            weights = weigh_places(self.weights, left.shape[1])
            differ = sum_known_places(
                left > 0, right > 0, weights, lambda rows, place: (left[rows, place, None] != right[:, place]) + 0.0
            )
            return differ / np.float32(weights.sum())
        length, other = int(a.arrays["size"][0]), int(b.arrays["size"][0])
        if length != other:
            raise UserError(f"The labels of the two sides differ in length: {length} values against {other}.")
        return ((length - count_shared(a, b).astype(np.float64)) / length).astype(np.float32)


def _code(text: str) -> int:
    """A number above 0 for a text, which other texts have once in 2^63 pairs; 0 for none."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) | 1 if text else 0


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
