"""Checks of annotated joints: finite numbers, and places inside the photograph."""

import reprlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cml.data.images import Size
from cml.data_prep.person_crop import Float64
from cml.errors import DataError


def outside_photo(joints: Float64, photo: Size) -> NDArray[np.bool_]:
    """Which visible joints lie outside a photograph of (height, width): (J,)."""
    height, width = photo
    slack = 0.02 * max(height, width)  # a click just beside the border means the border
    places = joints[:, :2]
    beyond: NDArray[np.bool_] = np.any((places < -slack) | (places > np.array([width, height]) + slack), axis=1)
    beyond[joints[:, 2] == 0] = False
    return beyond


def check_joints_inside(joints: Float64, names: Sequence[str], photo: Size, where: str) -> None:
    """Raise ``DataError`` if a visible joint lies outside a photograph of (height, width)."""
    beyond = np.flatnonzero(outside_photo(joints, photo))
    if len(beyond):
        x, y, _ = joints[beyond[0]]
        size = f"{photo[1]} x {photo[0]}"
        raise DataError(f"{where}: {names[beyond[0]]} at ({x:.1f}, {y:.1f}) lies outside the image of {size} pixels.")


def finite(value: object, shape: tuple[int, ...], what: str) -> Float64:
    """A list of a JSON file as an array of ``shape``."""
    try:
        array = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        size = " x ".join(map(str, shape))
        raise DataError(f"{what} should be {size} finite numbers. Got {reprlib.repr(value)} instead.")
    return array
