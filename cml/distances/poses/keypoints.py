"""Poses by squared L2. Not for: deciding which joints exist or where the crop lies, which data_prep does."""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from cml.array_types import Bools, Float32, Float64
from cml.distances.blas_threads import one_blas_thread
from cml.distances.exact_products import TILE_COLUMNS, UNIT_ROUNDOFF, Rows, compute_again, noise_floor, running_sum
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.poses.pose_labels import read_poses
from cml.errors import UserError
from cml.settings import check_word

Normalization = Literal["crop", "torso", "centered", "torso_centered"]


@dataclass(frozen=True)
class Keypoints(LabelDistance):
    """Squared L2 distance between poses [[x, y, visible], ...] over the joints visible in both, mean per shared joint.

    Exact: every distance is the float64 value of the direct formula rounded to float32, equal poses give exactly 0.
    Two poses that share fewer than ``min_shared`` joints cannot be compared: their distance is infinite, not zero.
    A pose that can be compared with no other, because too few of its joints are visible or its torso cannot be
    measured, is also at an infinite distance from itself.

    Args:
        normalization: ``crop``: coordinates as they are, in the crop's frame. ``torso``: each pose divided by its
            torso length. ``centered``: each pair centred on its shared joints, which takes out where the person
            stands. ``torso_centered``: both, which takes out the size as well.
        min_shared: Joints that two poses must share, at least 1, or 2 if centred.
        torso: Two groups of joint numbers, e.g. the hips and the shoulders: ``((2, 3), (12, 13))`` in MPII order,
            ``((2, 3), (8, 9))`` in LSP order. The torso length is the distance between the middles of the two
            groups; all of their joints must be visible to measure it.
        squared: False for the root of the mean squared distance, in the unit of the coordinates.

    Source:
        Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019, compares poses by squared L2; how
        to treat size and hidden joints is stated nowhere and is this file's choice.

    Example:
        >>> distance = Keypoints(min_shared=1)
        >>> poses = distance.encode([[[0, 0, 1], [2, 2, 1]], [[3, 4, 1], [0, 0, 0]]])
        >>> distance.pairwise(poses, poses).tolist()
        [[0.0, 25.0], [25.0, 0.0]]
    """

    normalization: Normalization = "crop"
    min_shared: int = 3
    torso: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    squared: bool = True
    name: ClassVar[str] = "keypoints"

    def __post_init__(self) -> None:
        check_word("normalization", self.normalization, get_args(Normalization))
        if "torso" in self.normalization:
            object.__setattr__(self, "torso", _groups(self.torso))
        elif self.torso is not None:
            raise UserError(f"The 'torso' is only used by torso normalisations, not by {self.normalization!r}.")
        super().__post_init__()
        least = 2 if self._centered else 1  # centred on a single joint any two poses are equal
        if self.min_shared < least:
            raise UserError(
                f"The 'min_shared' must be a whole number of at least {least} with normalization={self.normalization}. "
                f"Got {self.min_shared!r} instead."
            )

    @property
    def _centered(self) -> bool:
        return "centered" in self.normalization

    @property
    def unit(self) -> str:
        """Squared coordinate units of a joint, or torso lengths; not squared if the distance is not."""
        unit = "torso length" if "torso" in self.normalization else "px"
        return f"{unit}^2" if self.squared else unit

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Check and pack poses, normalised as far as each pose alone allows.

        Returns arrays ``xy`` (N, J, 2) float64, 0 where hidden, ``visible`` (N, J) bool, and ``noise`` (N,) float64,
        the rounding error that normalising leaves in a coordinate.
        """
        xy, visible = read_poses(labels)
        if xy.shape[1] < self.min_shared:
            raise UserError(f"Poses of {xy.shape[1]} joints can never share {self.min_shared}; lower min_shared.")
        noise = np.zeros(len(xy))  # the rounding error that normalising leaves in a coordinate
        if "torso" in self.normalization:
            length = self._torso_length(xy, visible)  # (N,), 0 where it cannot be measured
            measured = length > 1e-6 * np.abs(xy).max(axis=(1, 2))  # below it is rounding or a fault of the labels
            visible = visible & measured[:, None]
            xy = np.where(visible[:, :, None], xy / np.where(measured, length, 1.0)[:, None, None], 0.0)
        if self.normalization != "crop":
            noise = 4 * UNIT_ROUNDOFF * np.abs(xy).max(axis=(1, 2))
        if self._centered:  # a shift of each pose changes nothing, and products of short vectors round less
            middle = xy.sum(axis=1) / np.maximum(visible.sum(axis=1), 1)[:, None]
            xy = np.where(visible[:, :, None], xy - middle[:, None, :], 0.0)
        alone = int(np.count_nonzero(visible.sum(axis=1) < self.min_shared))
        if alone:
            unmeasured = int(np.count_nonzero(~measured)) if "torso" in self.normalization else 0
            why = f" ({unmeasured} of them without a measurable torso)" if unmeasured else ""
            warnings.warn(
                f"{alone} of {len(xy)} poses have fewer than {self.min_shared} usable joints{why} "
                "and cannot be compared with any other.",
                stacklevel=2,
            )
        return Labels({"xy": xy, "visible": visible, "noise": noise})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        joints = a.arrays["xy"].shape[1]
        if joints != b.arrays["xy"].shape[1]:
            raise UserError(f"The poses of the two sides have {joints} and {b.arrays['xy'].shape[1]} joints.")
        from cml.distances.poses.keypoint_products import PoseProducts

        result, root = np.empty((len(a), len(b)), np.float32), not self.squared
        products = PoseProducts(a, b, centered=self._centered, min_shared=self.min_shared, root=root)
        with one_blas_thread():
            for first in range(0, len(b), TILE_COLUMNS):
                others = b[first : first + TILE_COLUMNS]
                rows, columns = products.estimate(others, result, first)
                direct = functools.partial(self._direct, a, others)
                out = result[:, first : first + TILE_COLUMNS]
                compute_again(rows, columns, direct, pair_bytes=100 * joints, root=root, out=out)
        return result

    def _direct(self, a: Labels, b: Labels, rows: Rows, columns: Rows) -> Float64:
        """Compute squared distances of P pairs by differences: ``rows`` of a, ``columns`` of b."""
        a, b = a[rows], b[columns]
        both = a.arrays["visible"] & b.arrays["visible"]  # (P, J)
        shared = np.count_nonzero(both, axis=1)
        difference = np.where(both[:, :, None], a.arrays["xy"] - b.arrays["xy"], 0.0)  # (P, J, 2)
        x, y = difference[:, :, 0], difference[:, :, 1]
        if self._centered:
            x = np.where(both, x - (running_sum(x) / shared)[:, None], 0.0)
            y = np.where(both, y - (running_sum(y) / shared)[:, None], 0.0)
        mean = running_sum(x * x + y * y) / shared
        return np.where(mean <= noise_floor(a.arrays["noise"], b.arrays["noise"]), 0.0, mean)

    def _torso_length(self, xy: Float64, visible: Bools) -> Float64:
        assert self.torso is not None
        joints = [joint for group in self.torso for joint in group]
        if max(joints) >= xy.shape[1]:
            raise UserError(f"The 'torso' names joint {max(joints)}, but poses have joints 0 to {xy.shape[1] - 1}.")
        first, second = (xy[:, list(group)].mean(axis=1) for group in self.torso)
        length = np.linalg.norm(first - second, axis=1)
        return np.where(visible[:, joints].all(axis=1), length, 0.0)


def _groups(torso: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # noqa: ANN401 - as a user wrote it
    groups = [tuple(group) if isinstance(group, tuple | list) else () for group in torso or ()]
    whole = all(isinstance(joint, int) and not isinstance(joint, bool) and joint >= 0 for g in groups for joint in g)
    if len(groups) != 2 or not all(groups) or not whole or set(groups[0]) == set(groups[1]):
        raise UserError(
            "Torso normalisation needs 'torso', two different groups of joint numbers whose middles are the torso's "
            f"ends, e.g. torso=((2, 3), (12, 13)) for MPII's hips and shoulders. Got {torso!r} instead."
        )
    return groups[0], groups[1]
