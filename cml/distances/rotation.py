"""Rotations in space. Not for: angles in a plane (circular), or the position of a camera (place)."""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.spatial.transform import Rotation as Turn

from cml.array_types import Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, pack_vectors, refuse
from cml.errors import UserError
from cml.settings import check_word

_LENGTHS = {"quaternion": 4, "matrix": 9, "rotvec": 3, "euler": 3}
_GROUPS = {"tetrahedron": "T", "cube": "O", "icosahedron": "I"}
_NOISE = 2e-15  # of the sine of half an angle, by rounding: equal rotations are at distance 0
_AROUND = 1e-3  # how far a quaternion's length, or a matrix from orthogonal, may be off


@dataclass(frozen=True)
class Rotation(LabelDistance):
    """Geodesic distance on SO(3): the least angle, 0 to 180 degrees, that turns one rotation into the other.

    With a symmetry, rotations that make an object look the same are equal: the distance is the least over the group.

    Args:
        form: What a label is. ``quaternion``: [x, y, z, w], of either sign. ``matrix``: 3 rows of 3 numbers.
            ``rotvec``: the axis times the angle in degrees. ``euler``: three angles in degrees.
        order: Axes of Euler angles as scipy writes them: capitals for the object's own axes, as in ZYX (yaw, pitch,
            roll), small letters for fixed ones.
        scalar_first: True for quaternions [w, x, y, z].
        symmetry: Symmetry of the object: ``none``; ``C2``, ``C3``, ..., a turn by 360 / n degrees about its z axis;
            ``D2``, ``D3``, ..., that and half a turn about an axis across; ``tetrahedron``, ``cube`` or
            ``icosahedron``.

    Source:
        Huynh, "Metrics for 3D Rotations: Comparison and Analysis", JMIV 2009, distance 6.

    Example:
        >>> distance = Rotation(form="euler", order="ZYX")
        >>> heads = distance.encode([[0, 0, 0], [90, 0, 0], [350, 0, 0]])
        >>> distance.pairwise(heads[:1], heads).round(3).tolist()
        [[0.0, 90.0, 10.0]]
        >>> square = Rotation(form="euler", order="ZYX", symmetry="C4")
        >>> square.pairwise(heads[:1], heads).round(3).tolist()
        [[0.0, 0.0, 10.0]]
    """

    form: Literal["quaternion", "matrix", "rotvec", "euler"] = "quaternion"
    order: str = "ZYX"
    scalar_first: bool = False
    symmetry: str = "none"
    name: ClassVar[str] = "rotation"
    is_metric: ClassVar[bool] = True
    unit: ClassVar[str] = "degrees"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("form", self.form, _LENGTHS)
        order = str(self.order)
        if len(order) != 3 or not (set(order) <= set("xyz") or set(order) <= set("XYZ")) or order[1] in order[::2]:
            raise UserError(
                f"The 'order' must be three axes, as in ZYX or xyz, no two neighbours alike. Got {order!r} instead."
            )
        if not re.fullmatch(r"none|[CD]([2-9]|[1-9]\d)", str(self.symmetry)) and self.symmetry not in _GROUPS:
            raise UserError(
                f"The 'symmetry' must be none, C2 to C99, D2 to D99, {' or '.join(_GROUPS)}. Got {self.symmetry!r} "
                "instead."
            )

    @property
    def is_symmetric(self) -> bool:
        """True without a symmetry group, whose products round differently from the other side."""
        return self.symmetry == "none"

    def encode(self, labels: Sequence[Any]) -> Labels:  # array ``quaternions`` (N, 4) float64, [x, y, z, w] of length 1
        """Check and pack rotations."""
        if self.form == "matrix":
            labels = [_flat(label, position) for position, label in enumerate(labels)]
        numbers = pack_vectors(labels)
        if numbers.shape[1] != _LENGTHS[self.form]:
            wanted = f"should be a {self.form} of {_LENGTHS[self.form]} numbers"
            raise LabelError(0, f"{wanted}. It has {numbers.shape[1]} instead.")
        if self.form == "quaternion":
            length = np.linalg.norm(numbers, axis=1)
            refuse(np.abs(length - 1) > _AROUND, "is a quaternion of length {:.4g}, where 1 is meant.", length)
            turns = Turn.from_quat(numbers, scalar_first=self.scalar_first)
        elif self.form == "matrix":
            matrices = numbers.reshape(-1, 3, 3)
            away = np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
            refuse(away > _AROUND, "is not a rotation matrix: its rows are {:.2g} away from orthonormal.", away)
            determinant = np.linalg.det(matrices)
            refuse(determinant < 0, "is a matrix that mirrors: its determinant is {:.0f}.", determinant)
            turns = Turn.from_matrix(matrices)
        elif self.form == "rotvec":
            turns = Turn.from_rotvec(numbers, degrees=True)
        else:
            turns = Turn.from_euler(self.order, numbers, degrees=True)
        return Labels({"quaternions": np.asarray(turns.as_quat(), np.float64).reshape(-1, 4)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        turned = a.arrays["quaternions"][:, None]
        if self.symmetry != "none":
            turned = np.stack([(Turn.from_quat(turned[:, 0]) * symmetry).as_quat() for symmetry in self._group], axis=1)
        result = np.empty((len(a), len(b)), np.float32)
        _fill(turned, b.arrays["quaternions"], result)
        return result

    def label_vectors(
        self, labels: Labels
    ) -> Float64 | None:  # (N, 9) float64, or None with a symmetry, which makes many rotations equal
        """Return the rotation matrices, which a regression predicts."""
        if self.symmetry != "none":
            return None
        return np.asarray(Turn.from_quat(labels.arrays["quaternions"]).as_matrix()).reshape(-1, 9)

    @functools.cached_property
    def _group(self) -> Turn:
        return Turn.create_group(_GROUPS.get(self.symmetry, self.symmetry), axis="Z")


def _flat(label: Any, position: int) -> Float64:  # noqa: ANN401 - checked here
    try:
        matrix = np.asarray(label, np.float64)
    except (ValueError, TypeError):
        matrix = np.empty(0)
    if matrix.shape not in ((3, 3), (9,)):
        raise LabelError(position, "should be a matrix of 3 rows of 3 numbers.")
    return matrix.reshape(9)


@compile_loop(fastmath=AS_WRITTEN)
def _fill(turned: Float64, b: Float64, out: Float32) -> None:
    """Compute the angles between (A, G, 4) quaternions, the nearest of each G, and (B, 4)."""
    for i in range(turned.shape[0]):
        for j in range(b.shape[0]):
            best, nearest = -1.0, 0
            for g in range(turned.shape[1]):
                cosine = 0.0
                for k in range(4):
                    cosine += turned[i, g, k] * b[j, k]
                if abs(cosine) > best:
                    best, nearest = abs(cosine), g
            p, q = turned[i, nearest], b[j]
            # the vector part of p^-1 q, whose length is the sine of half the angle: small angles keep their digits
            x = (p[3] * q[0] - q[3] * p[0]) - (p[1] * q[2] - p[2] * q[1])
            y = (p[3] * q[1] - q[3] * p[1]) - (p[2] * q[0] - p[0] * q[2])
            z = (p[3] * q[2] - q[3] * p[2]) - (p[0] * q[1] - p[1] * q[0])
            sine = math.sqrt(x * x + y * y + z * z)
            out[i, j] = math.degrees(2 * math.atan2(sine, best)) if sine > _NOISE else 0.0
