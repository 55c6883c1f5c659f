"""The rules of annotated joints, for all sources of people: flags, marks of missing ones, and places in pixels."""

import reprlib
from collections.abc import Sequence

import numpy as np

from cml.array_types import Bools, Float64
from cml.data.images import Size
from cml.errors import DataError

FLAGS = (0, 1, 2)  # of a joint: hidden, or not labelled; labelled, but hidden; visible
UNSEEN = ((0, 0), (-1, -1))  # where annotation tools put joints that they did not see
_CORNER = 0.5, 1.5  # pixels beside the image and in it; sources count pixels from 0 or 1, at their edges or middles
_FEWEST = 3  # joints; two may well be in one pixel


def is_unseen(places: Float64) -> Bools:  # places (..., 2) -> (...)
    """Tell which joints lie where annotation tools put those that they did not see, exactly at (0, 0) or (-1, -1)."""
    unseen: Bools = np.any([(places == mark).all(axis=-1) for mark in UNSEEN], axis=0)
    return unseen


def check_flags(
    flags: Float64,
    known: Sequence[int],  # the numbers that there may be
    where: str,
    *,
    names: Sequence[str] = (),
    mend: str = "",
) -> None:
    """Check the numbers that say whether joints are visible."""
    wrong = np.flatnonzero(~np.isin(flags, known))
    if len(wrong):
        subject = f"{where} {names[wrong[0]]}" if names else where
        listed = f"{', '.join(map(str, known[:-1]))} or {known[-1]}"
        raise DataError(f"{subject} should be {listed}. Got {flags[wrong[0]]:g} instead{f'; {mend}' if mend else ''}.")


def check_in_pixels(joints: Float64, where: str) -> None:  # joints: joints in pixels: x, y, and 1 if visible, (J, 3)
    """Check that the visible joints do not all lie in the first pixel, as shares of the image's sides would."""
    places = joints[joints[:, 2] > 0, :2]
    if len(places) >= _FEWEST and ((places >= -_CORNER[0]) & (places <= _CORNER[1])).all() and np.ptp(places) <= 1:
        rule = "joints should be in pixels, but all of them lie between 0 and 1"
        mend = "they seem to be fractions of width and height: multiply x by the image's width and y by its height"
        raise DataError(f"{where}: {rule}; {mend}.")


def outside_photo(
    joints: Float64,  # joints in pixels: x, y, and 1 if visible, (J, 3)
    photo: Size,  # height and width of the photograph, in pixels
) -> Bools:  # whether each joint lies outside, (J,)
    """Find the visible joints outside a photograph by more than 2 % of its longer side."""
    height, width = photo
    slack = 0.02 * max(height, width)  # a click just beside the border means the border
    places = joints[:, :2]
    beyond: Bools = np.any((places < -slack) | (places > np.array([width, height]) + slack), axis=1)
    beyond[joints[:, 2] == 0] = False
    return beyond


def check_joints_inside(
    joints: Float64,  # joints in pixels: x, y, and 1 if visible, (J, 3)
    names: Sequence[str],
    photo: Size,  # height and width of the photograph, in pixels
    where: str,
) -> None:
    """Check that all visible joints lie in a photograph as it is seen, turned upright, and not all in one pixel."""
    check_in_pixels(joints, where)
    beyond = np.flatnonzero(outside_photo(joints, photo))
    if len(beyond):
        x, y, _ = joints[beyond[0]]
        size = f"{photo[1]} x {photo[0]}"
        raise DataError(
            f"{where}: {names[beyond[0]]} at ({x:.1f}, {y:.1f}) lies outside the image of {size} pixels, "
            "turned upright."
        )


def read_finite(value: object, shape: tuple[int, ...], subject: str) -> Float64:  # the numbers, of ``shape``
    """Convert a list of a JSON file to an array of finite numbers."""
    try:
        array = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        size = " x ".join(map(str, shape))
        raise DataError(f"{subject} should be {size} finite numbers. Got {reprlib.repr(value)} instead.")
    return array
