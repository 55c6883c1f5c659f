"""Numbers and vectors. Not for: numbers that wrap around (circular), or poses with hidden joints (keypoints)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.exact_products import TILE_ROWS, squared_euclidean
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_vectors
from cml.errors import UserError


@dataclass(frozen=True)
class Euclidean(LabelDistance):
    """Euclidean distance between labels that are numbers or equally long lists of numbers.

    Exact: every distance is the float64 value of the direct formula rounded to float32, equal labels give exactly 0.

    Args:
        squared: True for the squared distance.

    Example:
        >>> distance = Euclidean()
        >>> ages = distance.encode([31, 35, 60])
        >>> distance.pairwise(ages[:1], ages).tolist()
        [[0.0, 4.0, 29.0]]
    """

    squared: bool = False
    name: ClassVar[str] = "euclidean"

    @property
    def is_metric(self) -> bool:
        """True unless squared."""
        return not self.squared

    @property
    def unit(self) -> str:
        """The label's own unit, or its square."""
        return "label units^2" if self.squared else "label units"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``vectors`` (N, D) float64; of numbers D is 1
        """Check and pack numbers or vectors."""
        return Labels({"vectors": pack_vectors(labels)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides.

        distance is too small for float32.
        """
        left, right = a.arrays["vectors"], b.arrays["vectors"]
        check_same_length(left, right)
        try:
            with np.errstate(under="raise" if self.squared else None):
                if left.shape[1] > 1:
                    return squared_euclidean(left, right, root=not self.squared)
                result = np.empty((len(left), len(right)), np.float32)
                for start in range(0, len(left), TILE_ROWS):
                    difference = left[start : start + TILE_ROWS] - right.T  # (R, B) float64
                    result[start : start + TILE_ROWS] = np.square(difference) if self.squared else np.abs(difference)
                return result
        except FloatingPointError:
            raise UserError(
                "Two labels differ by less than 1e-19, whose square float32 cannot hold; rescale them, or leave out "
                "squared."
            ) from None

    def label_vectors(self, labels: Labels) -> Float64:
        """Return the vectors (N, D)."""
        return labels.arrays["vectors"]

    def labels_from_vectors(self, vectors: Float64) -> Float64:
        """Return the vectors (N, D) themselves."""
        return vectors
