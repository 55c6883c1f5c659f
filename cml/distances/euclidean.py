"""Numbers and vectors. Not for: numbers that wrap around (circular), or poses with hidden joints (keypoints)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.exact_products import TILE_ROWS, squared_euclidean
from cml.distances.known_parts import Unknown, check_parts, leave_out_defaults, sum_known_places, weigh_places
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_vectors
from cml.errors import UserError

MOST_NUMBERS = 24  # of a label, up to which the plain sum is faster than a matrix product
_FEW_PAIRS = 1 << 14  # which a product compares before compiled code is loaded


@dataclass(frozen=True)
class Euclidean(LabelDistance):
    """Euclidean distance between labels that are numbers or equally long lists of numbers.

    Exact: every distance is the float64 value of the direct formula rounded to float32, equal labels give exactly 0.

    With ``missing="skip"``, the numbers that both labels know are compared, and their squared distance is scaled to all
    numbers: times the weight of all by that of the known ones. Labels without a known number in common cannot be
    compared: infinity. Such distances are no metric.

    Args:
        squared: True for the squared distance.
        missing: "skip" where None or NaN says that a number is not known; "refuse" makes it an error.
        weights: What the squared difference of each number counts, above 0; 1 each when not given.

    Example:
        >>> distance = Euclidean()
        >>> ages = distance.encode([31, 35, 60])
        >>> distance.pairwise(ages[:1], ages).tolist()
        [[0.0, 4.0, 29.0]]
        >>> distance = Euclidean(missing="skip", weights=(1.0, 3.0))
        >>> rows = distance.encode([[1, 2], [4, None], [1, 4]])
        >>> distance.pairwise(rows[:1], rows).tolist()  # of the second, 9 * 4 / 1
        [[0.0, 6.0, 3.464101552963257]]
    """

    squared: bool = False
    missing: Unknown = "refuse"
    weights: tuple[float, ...] | None = None
    name: ClassVar[str] = "euclidean"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self.missing, self.weights)

    @property
    def is_metric(self) -> bool:
        """True unless squared, or numbers are left out."""
        return not self.squared and self.missing == "refuse"

    @property
    def unit(self) -> str:
        """The label's own unit, or its square."""
        return "label units^2" if self.squared else "label units"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``vectors`` (N, D) float64; of numbers D is 1
        """Check and pack numbers or vectors."""
        vectors = pack_vectors(labels, unknown=self.missing == "skip")
        weigh_places(self.weights, vectors.shape[1])
        return Labels({"vectors": vectors})

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them, without those that are not used."""
        return leave_out_defaults(super().settings(), "missing", "weights")

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides.

        distance is too small for float32.
        """
        left, right = a.arrays["vectors"], b.arrays["vectors"]
        check_same_length(left, right)
        if self.missing == "skip":
            return self._compare_known_numbers(left, right)
        if self.weights is not None:
            roots = np.sqrt(weigh_places(self.weights, left.shape[1]))
            left, right = left * roots, right * roots
        try:
            with np.errstate(under="raise" if self.squared else None):
                if 1 < left.shape[1] <= MOST_NUMBERS and len(left) * len(right) >= _FEW_PAIRS:
                    from cml.distances.few_numbers import squared_by_sum  # it imports numba

                    return squared_by_sum(left, right, root=not self.squared)
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

    def _compare_known_numbers(self, left: Float64, right: Float64) -> Float32:
        """Compare the numbers that both sides know."""
        known, other = ~np.isnan(left), ~np.isnan(right)
        left, right = np.nan_to_num(left), np.nan_to_num(right)
        weights = weigh_places(self.weights, left.shape[1])

        def apart(rows: slice, place: int) -> Float64:
            return np.square(left[rows, place, None] - right[:, place])

        squared = sum_known_places(known, other, weights, apart)
        return squared if self.squared else np.sqrt(squared)

    def label_vectors(self, labels: Labels) -> Float64 | None:
        """Return the vectors (N, D), times the roots of the weights; None where numbers may be unknown."""
        if self.missing == "skip":
            return None
        vectors = labels.arrays["vectors"]
        return vectors if self.weights is None else vectors * np.sqrt(weigh_places(self.weights, vectors.shape[1]))

    def labels_from_vectors(self, vectors: Float64) -> Float64:
        """Return the vectors (N, D) themselves, by the roots of the weights."""
        return vectors if self.weights is None else vectors / np.sqrt(weigh_places(self.weights, vectors.shape[1]))
