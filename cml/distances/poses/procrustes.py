"""The shapes of poses. Not for: poses in which place, size or rotation matters (keypoints, oks)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.poses.closed_form_alignment import align_pairs
from cml.distances.poses.pose_labels import read_poses
from cml.errors import UserError
from cml.settings import check_whole, check_word


@dataclass(frozen=True)
class Procrustes(LabelDistance):
    """What remains between two poses after the best similarity alignment over the joints visible in both.

    A pose is a list of joints [x, y, visible], or [x, y, z, visible] in space. The second pose of a pair is moved,
    scaled and rotated onto the first.

    Args:
        error: ``residual``: the share of the first pose's squared size that remains, 0 to 1. ``mpjpe``: the mean
            distance of joints in units of the first pose, which is PA-MPJPE.
        reflection: True if mirroring is allowed too.
        min_shared: Joints that two poses must share, at least 3; with fewer the distance is infinite.

    Source:
        Gower, "Generalized Procrustes analysis", Psychometrika 1975; Ionescu et al., "Human3.6M", TPAMI 2014, for the
        aligned joint error.

    Example:
        >>> distance = Procrustes()
        >>> shapes = distance.encode([
        ...     [[0, 0, 1], [1, 0, 1], [0, 2, 1]], [[5, 5, 1], [5, 7, 1], [1, 5, 1]], [[0, 0, 1], [1, 0, 1], [2, 0, 1]]
        ... ])
        >>> [f"{one:.3f}" for one in distance.pairwise(shapes[:1], shapes)[0]]
        ['0.000', '0.000', '0.400']
    """

    error: Literal["residual", "mpjpe"] = "residual"
    reflection: bool = False
    min_shared: int = 3
    name: ClassVar[str] = "procrustes"
    is_symmetric: ClassVar[bool] = False  # of residuals, only up to rounding

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("error", self.error, ("residual", "mpjpe"))
        check_whole("min_shared", self.min_shared, least=3)  # two points can always be aligned

    @property
    def unit(self) -> str:
        """A share of the squared size, or the unit of the coordinates."""
        return "residual" if self.error == "residual" else "label units"

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``points`` (N, J, 2 or 3) float64 and ``visible`` (N, J) bool
        """Check and pack poses in the plane or in space."""
        points, visible = read_poses(labels, (3, 4))
        return Labels({"points": points, "visible": visible})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = a.arrays["points"], b.arrays["points"]
        if left.shape[1:] != right.shape[1:]:
            raise UserError(f"The poses of the two sides have joints of shape {left.shape[1:]} and {right.shape[1:]}.")
        plane, mean_error = left.shape[2] == 2, self.error == "mpjpe"
        room = ((0, 0), (0, 0), (0, int(plane)))
        rows = np.pad(left, room), a.arrays["visible"]
        columns = np.pad(right, room), b.arrays["visible"]
        result = np.empty((len(a), len(b)), np.float32)
        align_pairs(rows, columns, plane, self.reflection, self.min_shared, mean_error, result)
        return result
