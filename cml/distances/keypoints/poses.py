"""Poses as arrays: joints with a coordinate each and a flag that says whether they are visible.

Not for: comparing them, which the distances beside this file do.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances.euclidean import LARGEST
from cml.distances.labels import LabelError, short
from cml.errors import UserError

_JOINTS = {3: "[x, y, visible]", 4: "[x, y, z, visible]"}


def stacked(labels: Sequence[Any], widths: tuple[int, ...] = (3,)) -> NDArray[np.float64]:
    """N poses of J joints as (N, J, W) float64.

    Args:
        labels: N lists of J joints.
        widths: Numbers that a joint may have, its flag included: 3 in the plane, 4 in space.

    Raises:
        LabelError: a pose has another form, or another number of joints than the first.
    """
    try:
        poses = np.asarray(labels, dtype=np.float64)
    except (ValueError, TypeError):
        poses = np.empty(0)
    if poses.ndim == 3 and poses.shape[1] > 0 and poses.shape[2] in widths:
        return poses
    form = " or ".join(_JOINTS[width] for width in widths)
    first: tuple[int, ...] = ()
    for position, label in enumerate(labels):
        try:
            shape = np.asarray(label, dtype=np.float64).shape
        except (ValueError, TypeError):
            shape = ()
        if len(shape) != 2 or shape[1] not in widths or shape[0] == 0:
            raise LabelError(position, f"should be a list of joints {form}. Got {short(label)} instead.")
        first = first or shape
        if shape[0] != first[0]:
            raise LabelError(position, f"has {shape[0]} joint{'s' if shape[0] > 1 else ''}, the first has {first[0]}.")
        if shape != first:
            raise LabelError(position, f"has joints of {shape[1]} numbers, the first has joints of {first[1]}.")
    raise UserError(f"Poses should be a list of N lists of joints {form}. Got {short(labels)} instead.")


def visible_joints(poses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which joints of (N, J, W) poses are visible: (N, J).

    Raises:
        LabelError: a flag is neither 0 nor 1, or a visible joint has a coordinate that is not finite or too large.
    """
    flags = poses[:, :, -1]
    bad = np.argwhere((flags != 0) & (flags != 1))
    if len(bad):
        position, joint = bad[0]
        raise LabelError(
            int(position), f"has visible={flags[position, joint]:g} at joint {joint}; it should be 0 (hidden) or 1."
        )
    visible: NDArray[np.bool_] = flags == 1
    with np.errstate(invalid="ignore"):
        usable = (np.abs(poses[:, :, :-1]) <= LARGEST).all(axis=2)  # False for NaN as well
    bad = np.argwhere(visible & ~usable)
    if len(bad):
        position, joint = bad[0]
        place = ", ".join(f"{number:g}" for number in poses[position, joint, :-1])
        raise LabelError(
            int(position), f"has the visible joint {joint} at ({place}); coordinates should be finite numbers."
        )
    return visible
