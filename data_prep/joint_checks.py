"""Checks of annotated joints: finite numbers, and places inside the photograph."""

import reprlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cml.data.images import Size
from cml.data_prep.person_crop import Float64
from cml.errors import DataError


def outside_photo(joints: Float64, photo: Size) -> NDArray[np.bool_]:
    """Find the visible joints outside a photograph by more than 2 % of its longer side.

    Args:
        joints: Joints in pixels: x, y, and 1 if visible, (J, 3).
        photo: Height and width of the photograph, in pixels.

    Returns:
        Whether each joint lies outside, (J,).
    """
    height, width = photo
    slack = 0.02 * max(height, width)  # a click just beside the border means the border
    places = joints[:, :2]
    beyond: NDArray[np.bool_] = np.any((places < -slack) | (places > np.array([width, height]) + slack), axis=1)
    beyond[joints[:, 2] == 0] = False
    return beyond


def check_joints_inside(joints: Float64, names: Sequence[str], photo: Size, where: str) -> None:
    """Check that all visible joints lie in a photograph.

    Args:
        joints: Joints in pixels: x, y, and 1 if visible, (J, 3).
        names: The J names of the joints, for errors.
        photo: Height and width of the photograph, in pixels.
        where: The person's place in the annotations, for errors.

    Raises:
        DataError: A visible joint lies outside the photograph.
    """
    beyond = np.flatnonzero(outside_photo(joints, photo))
    if len(beyond):
        x, y, _ = joints[beyond[0]]
        size = f"{photo[1]} x {photo[0]}"
        raise DataError(f"{where}: {names[beyond[0]]} at ({x:.1f}, {y:.1f}) lies outside the image of {size} pixels.")


def read_finite(value: object, shape: tuple[int, ...], subject: str) -> Float64:
    """Convert a list of a JSON file to an array of finite numbers.

    Args:
        value: What the file holds.
        shape: The shape that it should have.
        subject: What it is, for errors: "FILE: annotation 3: keypoints".

    Returns:
        The numbers, of ``shape``.

    Raises:
        DataError: ``value`` has another shape, or holds something other than finite numbers.
    """
    try:
        array = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        size = " x ".join(map(str, shape))
        raise DataError(f"{subject} should be {size} finite numbers. Got {reprlib.repr(value)} instead.")
    return array
