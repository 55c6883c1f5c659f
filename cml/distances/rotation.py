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
_TILE = 512  # quaternions that stay in the first-level cache
_RIGHT, _DEGREES = math.pi / 2, 360 / math.pi  # degrees of an angle by half of it
_P0, _P1, _P2 = 1.66666666666666657415e-01, -3.25565818622400915405e-01, 2.01212532134862925881e-01
_P3, _P4, _P5 = -4.00555345006794114027e-02, 7.91534994289814532176e-04, 3.47933107596021167570e-05
_Q1, _Q2 = -2.40339491173441421878e00, 2.02094576023350569471e00
_Q3, _Q4 = -6.88283971605453293030e-01, 7.70381505559019352791e-02
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
        _fill(np.ascontiguousarray(turned), np.ascontiguousarray(b.arrays["quaternions"].T), result)
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
def _fill(turned: Float64, columns: Float64, out: Float32) -> None:
    """Compute the angles between (A, G, 4) quaternions, the nearest of each G, and (4, B).

    Half an angle is twice the arcsine of sine / sqrt(2 (1 + cosine)), or pi / 2 less that of a cosine below 1/2: both
    keep the digits of small and of large angles, and the arcsine of at most 1/2 is a quotient of two polynomials (those
    of fdlibm's e_asin.c, Sun Microsystems 1993).
    """
    best, cosine = np.empty(_TILE), np.empty(_TILE)
    n0, n1, n2, n3 = np.empty(_TILE), np.empty(_TILE), np.empty(_TILE), np.empty(_TILE)  # the nearest of each G
    for start in range(0, columns.shape[1], _TILE):
        stop = min(columns.shape[1], start + _TILE)
        # slices and single numbers, of which the compiler sees that no index is negative and none changes
        b0, b1, b2, b3 = columns[0, start:stop], columns[1, start:stop], columns[2, start:stop], columns[3, start:stop]
        for i in range(turned.shape[0]):
            row = out[i, start:stop]
            best[:] = -1.0
            for g in range(turned.shape[1]):
                p0, p1, p2, p3 = turned[i, g, 0], turned[i, g, 1], turned[i, g, 2], turned[i, g, 3]
                for j in range(len(row)):
                    cosine[j] = abs(p0 * b0[j] + p1 * b1[j] + p2 * b2[j] + p3 * b3[j])
                for j in range(len(row)):
                    is_nearer = cosine[j] > best[j]
                    best[j] = cosine[j] if is_nearer else best[j]
                    n0[j] = p0 if is_nearer else n0[j]
                    n1[j] = p1 if is_nearer else n1[j]
                    n2[j] = p2 if is_nearer else n2[j]
                    n3[j] = p3 if is_nearer else n3[j]
            for j in range(len(row)):
                # the vector part of p^-1 q, whose length is the sine of half the angle: small angles keep their digits
                x = (n3[j] * b0[j] - b3[j] * n0[j]) - (n1[j] * b2[j] - n2[j] * b1[j])
                y = (n3[j] * b1[j] - b3[j] * n1[j]) - (n2[j] * b0[j] - n0[j] * b2[j])
                z = (n3[j] * b2[j] - b3[j] * n2[j]) - (n0[j] * b1[j] - n1[j] * b0[j])
                sine = math.sqrt(x * x + y * y + z * z)
                is_small = best[j] >= 0.5
                t = sine / math.sqrt(2 + 2 * best[j]) if is_small else best[j]
                w = t * t
                above = w * (_P0 + w * (_P1 + w * (_P2 + w * (_P3 + w * (_P4 + w * _P5)))))
                arcsine = t + t * (above / (1 + w * (_Q1 + w * (_Q2 + w * (_Q3 + w * _Q4)))))
                half = 2 * arcsine if is_small else _RIGHT - arcsine
                row[j] = _DEGREES * half if sine > _NOISE else 0.0
