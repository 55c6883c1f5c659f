"""Numbers and vectors. Not for: numbers that wrap around (circular), or poses with hidden joints (keypoints)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from cml.data.columns import Numbers
from cml.distances.exact_products import TILE_ROWS, UNIT_ROUNDOFF, squared_euclidean
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, refuse, short
from cml.errors import UserError

LARGEST = 1e18  # a label's length up to which squared distances fit into float32


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

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N numbers as (N, 1) and N lists of D numbers as (N, D) float64, array ``vectors``."""
        return Labels({"vectors": pack_vectors(labels)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Distances (len(a), len(b)) float32."""
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

    def label_vectors(self, labels: Labels) -> NDArray[np.float64]:
        """The vectors (N, D)."""
        return labels.arrays["vectors"]


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

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N lists of D numbers as (N, D) float64 rows of length 1, array ``directions``."""
        vectors = pack_vectors(labels)
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        refuse(largest[:, 0] == 0, "is a vector of zeros, which has no direction.")
        scaled = vectors / largest  # first to order 1, so that no square leaves float64
        return Labels({"directions": scaled / np.linalg.norm(scaled, axis=1, keepdims=True)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """1 - cosine (len(a), len(b)) float32."""
        left, right = a.arrays["directions"], b.arrays["directions"]
        check_same_length(left, right)
        # scaling to length 1 leaves each number with up to (D / 2 + 3) roundings
        noise = 4 * ((left.shape[1] + 6) * UNIT_ROUNDOFF) ** 2
        block = squared_euclidean(left, right, root=False, zero_below=noise)
        block *= np.float32(0.5)
        return block


def pack_vectors(labels: Sequence[Any], form: str = "") -> NDArray[np.float64]:
    """Check N numbers or equally long lists of numbers, as of ``form`` "[x, y]", and pack them as (N, D) float64."""
    given: object = np.asarray(labels) if isinstance(labels, Numbers) else labels
    if isinstance(given, np.ndarray) and given.ndim in (1, 2) and given.dtype.kind in "fiub":
        vectors = given.reshape(len(given), -1).astype(np.float64)
    else:
        rows = [_numbers(label, position) for position, label in enumerate(labels)]
        for position, row in enumerate(rows):
            if len(row) != len(rows[0]):
                count = f"{len(row)} number{'s' if len(row) != 1 else ''}"
                raise LabelError(position, f"has {count}, the first has {len(rows[0])}.")
        vectors = np.stack(rows)
    if vectors.shape[1] == 0:
        raise LabelError(0, "is an empty list; it should hold at least one number.")
    if len(bad := np.argwhere(~np.isfinite(vectors))):
        position, place = bad[0]
        raise LabelError(int(position), f"holds {vectors[position, place]} where a finite number should be.")
    with np.errstate(over="ignore"):
        far = np.linalg.norm(vectors, axis=1) > LARGEST
    refuse(far, f"has a length above {LARGEST:g}, whose square float32 cannot hold; rescale it.")
    if form and vectors.shape[1] != form.count(",") + 1:
        raise LabelError(0, f"should be {form}. It has {vectors.shape[1]} numbers instead.")
    return vectors


def check_same_length(a: NDArray[Any], b: NDArray[Any]) -> None:
    """Raise ``UserError`` unless the packed vectors ``a`` (A, D) and ``b`` (B, D) have the same D."""
    if a.shape[1] != b.shape[1]:
        raise UserError(f"The labels of the two sides differ in length: {a.shape[1]} numbers against {b.shape[1]}.")


def _numbers(label: Any, position: int) -> NDArray[np.float64]:  # noqa: ANN401 - checked here
    try:
        row = np.asarray(label)
    except ValueError:  # lists of different lengths inside one label
        row = np.asarray(None)
    if row.dtype.kind not in "fiub" or row.ndim > 1:
        raise LabelError(position, f"should be a number or a list of numbers. Got {short(label)} instead.")
    return np.atleast_1d(row).astype(np.float64)
