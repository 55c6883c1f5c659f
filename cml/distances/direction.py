"""Directions in space, such as of a gaze or a surface's normal. Not for: rotations (rotation), or angles (circular)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.exact_products import direction_noise, squared_euclidean
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_directions


@dataclass(frozen=True)
class Direction(LabelDistance):
    """The angle between two vectors in degrees, from 0 (same direction) to 180 (opposite).

    Computed as 2 atan2(|u - v|, |u + v|) of the vectors scaled to length 1 (Kahan), which keeps its digits for small
    angles and for nearly opposite directions; vectors of the same direction give exactly 0.

    Example:
        >>> distance = Direction()
        >>> gazes = distance.encode([[0, 0, -1], [0, 0, -2], [0, 1, 0], [0, 0, 1]])
        >>> distance.pairwise(gazes[:1], gazes).round(3).tolist()
        [[0.0, 0.0, 90.0, 180.0]]
    """

    name: ClassVar[str] = "direction"
    unit: ClassVar[str] = "degrees"
    is_metric: ClassVar[bool] = True

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``directions`` (N, D) float64, rows of length 1
        """Check vectors and pack their directions."""
        return pack_directions(labels)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = a.arrays["directions"], b.arrays["directions"]
        check_same_length(left, right)
        noise = direction_noise(left.shape[1])
        apart = squared_euclidean(left, right, root=False, zero_below=noise)
        opposite = squared_euclidean(left, -right, root=False, zero_below=noise)
        angles = np.arctan2(np.sqrt(apart), np.sqrt(opposite))
        block: Float32 = np.degrees(2 * angles).astype(np.float32)
        return block

    def label_vectors(self, labels: Labels) -> Float64:  # (N, D) float64
        """Return the vectors of length 1: what a regression predicts."""
        directions: Float64 = labels.arrays["directions"]
        return directions

    def labels_from_vectors(self, vectors: Float64) -> Float64:  # (N, D) float64
        """Return the vectors scaled to length 1; NaN of a vector of zeros."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        directions: Float64 = np.divide(vectors, lengths, out=np.full_like(vectors, np.nan), where=lengths > 0)
        return directions
