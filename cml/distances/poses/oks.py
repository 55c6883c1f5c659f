"""Poses by COCO's measure. Not for: poses without a size on a common scale (procrustes), squared pixels (keypoints)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cml.array_types import Bools, Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.poses.pose_labels import read_poses
from cml.errors import UserError
from cml.settings import check_above_zero, check_whole

# Of COCO's 17 joints, as pycocotools has them: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles.
COCO_SIGMAS = tuple(sigma / 1000 for sigma in (26, 25, 25, 35, 35, 79, 79, 72, 72, 62, 62, 107, 107, 87, 87, 89, 89))
_BOX_SHARE = 0.53  # of a person's box that COCO's people fill on average


@dataclass(frozen=True)
class Oks(LabelDistance):
    """1 - OKS of poses [[x, y, visible], ...]: the mean over shared joints of 1 - exp(-d^2 / (2 s^2 (2 sigma)^2)).

    s^2 is the person's area. COCO takes it from the first pose of a pair, its ground truth; here it is the mean of
    both, so that the distance is symmetric.

    Args:
        area: Area of every person in px^2, for crops of one scale; None for 0.53 of the box around the visible joints.
        sigmas: Spread of each joint; None for COCO's, of 17 joints.
        min_shared: Joints that two poses must share; with fewer the distance is infinite.

    Source:
        https://cocodataset.org/#keypoints-eval

    Example:
        >>> distance = Oks(area=100.0, sigmas=(0.1, 0.1), min_shared=1)
        >>> poses = distance.encode([[[0, 0, 1], [9, 9, 1]], [[2, 0, 1], [0, 0, 0]]])
        >>> [f"{one:.4f}" for one in distance.pairwise(poses[:1], poses)[0]]
        ['0.0000', '0.3935']
    """

    area: float | None = None
    sigmas: tuple[float, ...] | None = None
    min_shared: int = 3
    name: ClassVar[str] = "oks"
    unit: ClassVar[str] = "1 - OKS"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area is not None:
            check_above_zero("area", self.area)
        sigmas = (1.0,) if self.sigmas is None else self.sigmas
        if not sigmas or not all(0 < sigma < math.inf for sigma in sigmas):
            raise UserError(f"The 'sigmas' must be above 0. Got {sigmas!r} instead.")
        check_whole("min_shared", self.min_shared)

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``xy`` (N, J, 2) float64, ``visible`` (N, J) bool and ``area`` (N,) float64 in px^2
        """Check and pack poses with the area of their person."""
        xy, visible = read_poses(labels)
        sigmas = COCO_SIGMAS if self.sigmas is None else self.sigmas
        if xy.shape[1] != len(sigmas):
            whose = "COCO's 17 joints" if self.sigmas is None else f"the {len(sigmas)} 'sigmas'"
            raise UserError(f"Poses of {xy.shape[1]} joints do not fit {whose}; give 'sigmas', one for each joint.")
        if self.area is None:
            low = np.where(visible[:, :, None], xy, np.inf).min(axis=1)
            high = np.where(visible[:, :, None], xy, -np.inf).max(axis=1)
            area = _BOX_SHARE * np.where(visible.any(axis=1), np.prod(np.maximum(high - low, 0), axis=1), 0.0)
        else:
            area = np.full(len(xy), float(self.area))
        return Labels({"xy": xy, "visible": visible, "area": area})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        left, right = ((side.arrays["xy"], side.arrays["visible"], side.arrays["area"]) for side in (a, b))
        sigmas = np.array(COCO_SIGMAS if self.sigmas is None else self.sigmas)
        result = np.empty((len(a), len(b)), np.float32)
        _fill(left, right, 8 * sigmas * sigmas, self.min_shared, result)
        return result


Side = tuple[Float64, Bools, Float64]


@compile_loop(fastmath=AS_WRITTEN)
def _fill(a: Side, b: Side, spreads: Float64, min_shared: int, out: Float32) -> None:
    """Write 1 - OKS; ``spreads`` (J,) is 2 (2 sigma)^2 of each joint."""
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            area = (a[2][i] + b[2][j]) / 2
            shared, total = 0, 0.0
            for k in range(spreads.shape[0]):
                if a[1][i, k] and b[1][j, k]:
                    x, y = a[0][i, k, 0] - b[0][j, k, 0], a[0][i, k, 1] - b[0][j, k, 1]
                    square = x * x + y * y
                    shared += 1
                    if square > 0:
                        total -= math.expm1(-square / (area * spreads[k])) if area > 0 else -1.0
            out[i, j] = total / shared if shared >= min_shared else np.inf
