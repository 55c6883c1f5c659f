"""The shapes of poses, by the best similarity transformation between two of them in closed form, compiled.

Not for: poses in which place, size or rotation matters (keypoints, oks).

The sum of the singular values of the cross covariance, the last with the determinant's sign, is the largest eigenvalue
of a 4 x 4 matrix. Newton's method finds it from above; its eigenvector is the rotation as a quaternion. In the plane
the sum is the length of a vector.

A batched ``numpy.linalg.svd`` gives the same to 2e-13 and takes 7 to 9 times as long a pair, its svd alone 4 times.

References: Horn, "Closed-form solution of absolute orientation using unit quaternions", JOSA A 1987; Theobald, "Rapid
calculation of RMSDs using a quaternion-based characteristic polynomial", Acta Cryst. A 2005 (Newton's method).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Bools, Float32, Float64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
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


Side = tuple[Float64, Bools]


_NOISE = 1e-13  # of a residual, by rounding


@compile_loop(fastmath=AS_WRITTEN, inline=True)
def _minor(matrix: Float64, row: int, column: int) -> float:
    """Compute the signed determinant of a 4 x 4 matrix without a row and a column."""
    a, b, c = (0 if row > 0 else 1), (1 if row > 1 else 2), (2 if row > 2 else 3)
    p, q, r = (0 if column > 0 else 1), (1 if column > 1 else 2), (2 if column > 2 else 3)
    value: float = (
        matrix[a, p] * (matrix[b, q] * matrix[c, r] - matrix[b, r] * matrix[c, q])
        - matrix[a, q] * (matrix[b, p] * matrix[c, r] - matrix[b, r] * matrix[c, p])
        + matrix[a, r] * (matrix[b, p] * matrix[c, q] - matrix[b, q] * matrix[c, p])
    )
    return value if (row + column) % 2 == 0 else -value


@compile_loop(fastmath=AS_WRITTEN, inline=True)
def _largest_eigenvalue(s: Float64, determinant: float, key: Float64) -> float:
    """Find that of the matrix ``key`` (4, 4), which is written here, of a cross covariance (3, 3) of unit-norm sets."""
    square = 0.0
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        square += s[i, 0] ** 2 + s[i, 1] ** 2 + s[i, 2] ** 2
        key[0, i + 1] = key[i + 1, 0] = s[j, k] - s[k, j]
        key[i + 1, i + 1] = s[i, i] - s[j, j] - s[k, k]
        key[j + 1, k + 1] = key[k + 1, j + 1] = s[j, k] + s[k, j]
    key[0, 0] = s[0, 0] + s[1, 1] + s[2, 2]
    c0 = 0.0
    for k in range(4):
        c0 += key[0, k] * _minor(key, 0, k)
    c1, c2 = -8 * determinant, -2 * square
    value = 1.0
    for _ in range(50):  # few are enough unless two eigenvalues are equal
        slope = 4 * value * value * value + 2 * c2 * value + c1
        if slope <= 0:
            break
        step = (((value * value + c2) * value + c1) * value + c0) / slope
        value -= step
        if step < 1e-15:
            break
    return value


@compile_loop(fastmath=AS_WRITTEN)
def _quaternion(key: Float64, value: float, out: Float64) -> None:
    """Find the eigenvector (w, x, y, z) of ``key`` (4, 4), overwritten, to its largest eigenvalue."""
    for k in range(4):
        key[k, k] -= value
    best, row = 0.0, 0
    for k in range(4):
        size = abs(_minor(key, k, k))
        if size > best:
            best, row = size, k
    if best < 1e-9:  # two equal eigenvalues: any vector of their plane aligns as well
        vectors = np.linalg.eigh(key)[1]
        for k in range(4):
            out[k] = vectors[k, 3]
        return
    length = 0.0
    for k in range(4):
        out[k] = _minor(key, row, k)
        length += out[k] * out[k]
    length = math.sqrt(length)
    for k in range(4):
        out[k] /= length


@compile_loop(fastmath=AS_WRITTEN)
def align_pairs(
    a: Side,  # points (A, J, 3), whose third coordinates are 0 in the plane, and which of them are visible (A, J)
    b: Side,  # the same of the B poses that are aligned onto those of ``a``
    plane: bool,
    reflection: bool,
    min_shared: int,
    mean_error: bool,
    out: Float32,  # (A, B), written in place; infinite where too few joints are shared
) -> None:
    """Align poses onto others over the joints that both show, and write what remains."""
    # numbers are written one by one: numba compiles assignments of rows and arithmetic on arrays for seconds
    s, key, turn = np.empty((3, 3)), np.empty((4, 4)), np.empty(4)
    middle_x, middle_y, rotated = np.empty(3), np.empty(3), np.empty(3)
    joints = a[0].shape[1]
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            y, x = a[0][i], b[0][j]
            shared = 0
            for c in range(3):
                middle_x[c], middle_y[c], s[c, 0], s[c, 1], s[c, 2] = 0.0, 0.0, 0.0, 0.0, 0.0
            for k in range(joints):
                if a[1][i, k] and b[1][j, k]:
                    shared += 1
                    for c in range(3):
                        middle_x[c] += x[k, c]
                        middle_y[c] += y[k, c]
            if shared < min_shared:
                out[i, j] = np.inf
                continue
            size_x, size_y = 0.0, 0.0
            for c in range(3):
                middle_x[c] /= shared
                middle_y[c] /= shared
            for k in range(joints):
                if a[1][i, k] and b[1][j, k]:
                    for c in range(3):
                        of_x = x[k, c] - middle_x[c]
                        size_x += of_x * of_x
                        size_y += (y[k, c] - middle_y[c]) ** 2
                        for d in range(3):
                            s[c, d] += of_x * (y[k, d] - middle_y[d])
            value, scale, mirror = 0.0, 0.0, 1.0
            turn[0], turn[1], turn[2], turn[3] = 1.0, 0.0, 0.0, 0.0
            if size_x > 0 and size_y > 0:
                size = math.sqrt(size_x) * math.sqrt(size_y)
                for c in range(3):
                    for d in range(3):
                        s[c, d] /= size
                if plane:
                    if reflection and s[0, 0] * s[1, 1] < s[0, 1] * s[1, 0]:
                        mirror = -1.0
                        s[1, 0], s[1, 1], s[1, 2] = -s[1, 0], -s[1, 1], -s[1, 2]
                    along, across = s[0, 0] + s[1, 1], s[0, 1] - s[1, 0]
                    value = math.hypot(along, across)
                    half = math.atan2(across, along) / 2
                    turn[0], turn[3] = math.cos(half), math.sin(half)
                else:
                    determinant = (
                        s[0, 0] * (s[1, 1] * s[2, 2] - s[1, 2] * s[2, 1])
                        - s[0, 1] * (s[1, 0] * s[2, 2] - s[1, 2] * s[2, 0])
                        + s[0, 2] * (s[1, 0] * s[2, 1] - s[1, 1] * s[2, 0])
                    )
                    if reflection and determinant < 0:
                        mirror, determinant = -1.0, -determinant
                        for c in range(3):
                            s[c, 0], s[c, 1], s[c, 2] = -s[c, 0], -s[c, 1], -s[c, 2]
                    value = _largest_eigenvalue(s, determinant, key)
                    if mean_error:
                        _quaternion(key, value, turn)
                scale = value * math.sqrt(size_y / size_x)
            if not mean_error:
                remains = 1 - value * value if size_x + size_y > 0 else 0.0
                out[i, j] = remains if remains > _NOISE else 0.0
                continue
            total = 0.0
            w, u, v, t = turn[0], turn[1], turn[2], turn[3]
            for k in range(joints):
                if a[1][i, k] and b[1][j, k]:
                    p, q, r = x[k, 0] - middle_x[0], x[k, 1] - middle_x[1], x[k, 2] - middle_x[2]
                    if mirror < 0:
                        q = -q
                        if not plane:
                            p, r = -p, -r
                    rotated[0] = (1 - 2 * (v * v + t * t)) * p + 2 * (u * v - w * t) * q + 2 * (u * t + w * v) * r
                    rotated[1] = 2 * (u * v + w * t) * p + (1 - 2 * (u * u + t * t)) * q + 2 * (v * t - w * u) * r
                    rotated[2] = 2 * (u * t - w * v) * p + 2 * (v * t + w * u) * q + (1 - 2 * (u * u + v * v)) * r
                    square = 0.0
                    for c in range(3):
                        square += (scale * rotated[c] - (y[k, c] - middle_y[c])) ** 2
                    total += math.sqrt(square)
            out[i, j] = total / shared
