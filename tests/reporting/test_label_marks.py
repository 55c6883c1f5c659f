"""Angles, rotations, places and boxes drawn on pictures: where the marks are."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from cml.array_types import Float64
from cml.errors import UserError
from cml.reporting.label_marks import draw_axes, draw_boxes, draw_dial, draw_place

GREY = Image.new("RGB", (300, 200), "#808080")
ORANGE = (255, 176, 0)


def places_of(image: Image.Image, color: tuple[int, int, int]) -> Float64:
    """The mean x and y of the pixels of about a colour."""
    pixels = np.asarray(image, np.float64)
    rows, columns = np.nonzero((np.abs(pixels - color) < 30).all(axis=2))
    assert len(rows)
    return np.array([columns.mean(), rows.mean()])


def test_a_dial_points_clockwise_from_above() -> None:
    up, right, down, left = (places_of(draw_dial(GREY, turn), ORANGE) for turn in (0, 0.25, 0.5, -0.25))
    middle = (up + down) / 2
    assert up[1] < middle[1] - 5
    assert right[0] > middle[0] + 5
    assert left[0] < middle[0] - 5
    assert np.array_equal(places_of(draw_dial(GREY, 7.25), ORANGE), right)


def test_axes_follow_the_camera() -> None:
    vermilion, green = (213, 94, 0), (0, 158, 115)
    plain, turned = draw_axes(GREY, np.eye(3)), draw_axes(GREY, [[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    assert places_of(plain, vermilion)[0] > 155  # x to the right
    assert places_of(plain, green)[1] > 105  # y down
    assert places_of(turned, vermilion)[1] > 105  # a quarter turn takes x to y
    with pytest.raises(UserError, match=r"must be \(3, 3\)\. Got the shape \(4,\)"):
        draw_axes(GREY, [0, 0, 0, 1])


def test_a_place_lies_on_the_map_as_on_the_globe() -> None:
    north, south, east = (places_of(draw_place(GREY, *at), ORANGE) for at in ((60, 0), (-60, 0), (0, 90)))
    assert north[1] < south[1]
    assert abs(north[0] - south[0]) < 1
    assert east[0] > north[0] + 10
    assert np.abs(places_of(draw_place(GREY, 0, 270), ORANGE) - places_of(draw_place(GREY, 0, -90), ORANGE)).max() < 1
    for wrong in ((91, 0), (0, float("nan")), (0, 0, float("inf"))):
        with pytest.raises(UserError, match="A place needs"):
            draw_place(GREY, *wrong)


def test_boxes_are_frames() -> None:
    drawn = np.asarray(draw_boxes(GREY, [("bed", 0.1, 0.1, 0.5, 0.5), ("off", -7, 0.2, 9, 0.4)])).astype(int)
    changed = (drawn != 128).any(axis=2)
    assert changed[60, 28:36].any()  # the left side of the bed
    assert not changed[90, 60:140].any()  # nothing within
    assert np.asarray(draw_boxes(GREY, [])).max() == 128
    with pytest.raises(UserError, match="A dial needs a finite turn"):
        draw_dial(GREY, float("nan"))
