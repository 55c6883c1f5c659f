"""Poses as labels: lists of joints with their visibility, checked and packed for all label distances of poses."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Bools, Float64
from cml.distances.labels import LARGEST, LabelError, short
from cml.errors import UserError

_JOINTS = {3: "[x, y, visible]", 4: "[x, y, z, visible]"}


def read_poses(
    labels: Sequence[Any],  # N lists of J joints, each W numbers: coordinates, then 1 for visible or 0 for hidden
    widths: tuple[int, ...] = (3,),
) -> tuple[Float64, Bools]:  # coordinates (N, J, W - 1) float64, 0 where hidden, and visibility (N, J) bool
    """Check poses and split them into coordinates and visibility."""
    poses = _stack(labels, widths)
    flags, coordinates = poses[:, :, -1], poses[:, :, :-1]
    bad = np.argwhere((flags != 0) & (flags != 1)).tolist()
    if bad:
        position, joint = bad[0]
        fault = f"has visible={flags[position, joint]:g} at joint {joint}"
        raise LabelError(position, f"{fault}; it should be 0 (hidden) or 1.")
    visible: Bools = flags == 1
    with np.errstate(invalid="ignore"):
        usable = (np.abs(coordinates) <= LARGEST).all(axis=2)  # False for NaN as well
    bad = np.argwhere(visible & ~usable).tolist()
    if bad:
        position, joint = bad[0]
        place = ", ".join(f"{number:g}" for number in coordinates[position, joint])
        raise LabelError(position, f"has the visible joint {joint} at ({place}); coordinates should be finite numbers.")
    return np.where(visible[:, :, None], coordinates, 0.0), visible


def _stack(labels: Sequence[Any], widths: tuple[int, ...]) -> Float64:
    poses = _as_array(labels)
    if poses.ndim == 3 and poses.shape[1] > 0 and poses.shape[2] in widths:
        return poses
    form = " or ".join(_JOINTS[width] for width in widths)
    first: tuple[int, ...] = ()
    for position, label in enumerate(labels):
        shape = _as_array(label).shape
        if len(shape) != 2 or shape[1] not in widths or shape[0] == 0:
            raise LabelError(position, f"should be a list of joints {form}. Got {short(label)} instead.")
        first = first or shape
        if shape[0] != first[0]:
            raise LabelError(position, f"has {shape[0]} joint{'s' if shape[0] > 1 else ''}, the first has {first[0]}.")
        if shape != first:
            raise LabelError(position, f"has joints of {shape[1]} numbers, the first has joints of {first[1]}.")
    raise UserError(f"Poses should be a list of N lists of joints {form}. Got {short(labels)} instead.")


def _as_array(label: Any) -> Float64:  # noqa: ANN401 - checked by its shape
    try:
        return np.asarray(label, dtype=np.float64)
    except (ValueError, TypeError):
        return np.empty(0)
