"""Distributions over ordered bins, such as votes for each score. Not for: bins without an order (cosine)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Float32, Float64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels, check_same_length, pack_vectors, refuse
from cml.errors import UserError


@dataclass(frozen=True)
class Emd(LabelDistance):
    """The earth mover's distance of two distributions over ordered bins.

    It is the least mean way that the one has to be moved to become the other: the sum over the gaps between bins of the
    gap times the difference of the cumulative shares. Each label is scaled to the sum 1 first, so counts may be given.

    Source: Rubner, Tomasi and Guibas, "The Earth Mover's Distance as a Metric for Image Retrieval", IJCV 2000; on a
    line the closed form is that of Vallender, 1974.

    Args:
        positions: Where the bins lie, in ascending order; 0, 1, 2 ... when not given.

    Example:
        >>> distance = Emd()
        >>> votes = distance.encode([[4, 0, 0], [2, 2, 0], [0, 0, 1]])
        >>> distance.pairwise(votes[:1], votes).tolist()
        [[0.0, 0.5, 2.0]]
    """

    positions: tuple[float, ...] | None = None
    name: ClassVar[str] = "emd"
    is_metric: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        places = np.asarray(self.positions or (0.0, 1.0))
        if len(places) < 2 or not np.isfinite(places).all() or not (np.diff(places) > 0).all():
            raise UserError(f"'positions' should be two or more numbers in ascending order. Got {self.positions}.")

    @property
    def unit(self) -> str:
        """Bins, or the unit of the positions."""
        return "bins" if self.positions is None else "label units"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``cumulative`` (N, K - 1), times the gaps between bins
        """Check distributions and pack their cumulative shares."""
        shares = pack_vectors(labels)
        refuse(shares.min(axis=1) < 0, "has a share below 0.")
        largest = shares.max(axis=1, keepdims=True)
        refuse(largest[:, 0] == 0, "is a distribution of zeros.")
        scaled = shares / largest  # first to order 1, so that no sum leaves float64
        cumulative = np.cumsum(scaled / scaled.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        return Labels({"cumulative": cumulative * self._find_gaps(shares.shape[1])})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        from scipy.spatial.distance import cdist

        left, right = a.arrays["cumulative"], b.arrays["cumulative"]
        check_same_length(left, right)
        block: Float32 = cdist(left, right, "cityblock").astype(np.float32)
        return block

    def _find_gaps(self, bins: int) -> Float64:  # -> (K - 1,)
        if bins < 2:
            raise UserError("A distribution has two or more bins. Got labels of one number.")
        if self.positions is not None and len(self.positions) != bins:
            raise UserError(f"'positions' has {len(self.positions)} bins, but the labels have {bins}.")
        return np.ones(bins - 1) if self.positions is None else np.diff(self.positions)
