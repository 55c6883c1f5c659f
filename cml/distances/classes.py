"""Classes. Not for: numbers, of which some are closer than others (euclidean), or several names an item (jaccard)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short

_KINDS = {str: "text", int: "whole number"}


@dataclass(frozen=True)
class Classes(LabelDistance):
    """0 for two labels of one class, 1 for any others.

    Labels are texts, or whole numbers (7 and 7.0 are one class); not both in one set.

    Example:
        >>> distance = Classes()
        >>> birds = distance.encode(["wren", "gull", "wren"])
        >>> distance.pairwise(birds[:1], birds).tolist()
        [[0.0, 1.0, 0.0]]
    """

    name: ClassVar[str] = "classes"
    unit: ClassVar[str] = "0 same class, 1 another"
    is_metric: ClassVar[bool] = True

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``names`` (N,) text, and ``digests`` (N, 2) uint64 of these, which are compared
        """Check and pack classes."""
        values = [_read_class(label, position) for position, label in enumerate(labels)]
        kind = type(values[0])
        for position, value in enumerate(values):
            if type(value) is not kind:
                raise LabelError(position, f"is {short(labels[position])}, the first is a {_KINDS[kind]}.")
        names = [str(value) for value in values]
        texts = {name: f"{_KINDS[kind]} {name}".encode("utf-8", "surrogatepass") for name in set(names)}
        digests = {name: hashlib.blake2b(text, digest_size=16).digest() for name, text in texts.items()}
        packed = np.frombuffer(b"".join(digests[name] for name in names), np.uint64).reshape(-1, 2)
        return Labels({"names": np.array(names), "digests": packed})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = a.arrays["digests"], b.arrays["digests"]
        distances: Float32 = (left[:, :1] != right[:, 0]).astype(np.float32)  # (A, B)
        np.maximum(distances, left[:, 1:] != right[:, 1], out=distances)
        return distances

    def class_names(self, labels: Labels) -> NDArray[np.str_]:
        """Return the names (N,)."""
        return labels.arrays["names"]


def _read_class(label: Any, position: int) -> Any:  # noqa: ANN401 - checked here
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not (value.strip() if isinstance(value, str) else isinstance(value, int) and not isinstance(value, bool)):
        raise LabelError(
            position,
            f"should be a class: a text or a whole number. Got {short(label)} instead; for continuous labels take "
            "another label distance, such as euclidean.",
        )
    return value
