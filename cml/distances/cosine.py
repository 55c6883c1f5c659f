"""The angle between vectors. Not for: vectors whose length matters (euclidean)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32
from cml.distances.exact_products import direction_noise, squared_euclidean
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_directions


@dataclass(frozen=True)
class Cosine(LabelDistance):
    """1 - cosine of the angle between two vectors, from 0 (same direction) to 2 (opposite).

    Computed as half the squared distance of the vectors scaled to length 1, which keeps its digits for small angles;
    vectors of the same direction give exactly 0. It is no metric; its root is proportional to one.

    Example:
        >>> distance = Cosine()
        >>> vectors = distance.encode([[1, 0], [3, 0], [0, 2]])
        >>> distance.pairwise(vectors[:1], vectors).tolist()
        [[0.0, 0.0, 1.0]]
    """

    name: ClassVar[str] = "cosine"
    unit: ClassVar[str] = "1 - cosine"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``directions`` (N, D) float64, rows of length 1
        """Check vectors and pack their directions."""
        return pack_directions(labels)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = a.arrays["directions"], b.arrays["directions"]
        check_same_length(left, right)
        noise = direction_noise(left.shape[1])
        block = squared_euclidean(left, right, root=False, zero_below=noise)
        block *= np.float32(0.5)
        return block
