"""Drawn people in random poses over photographs, among clutter and under changing light, with the 16 MPII joints."""

import functools
import math
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from cml.array_types import Float32, Float64, UInt8
from cml.data_prep.synthetic.draw_items import draw_items
from cml.data_prep.synthetic.lighting import relight
from cml.data_prep.synthetic.people.clothes import body_parts, sample_clothes
from cml.data_prep.synthetic.people.figure import JOINTS, pose_figure, turn
from cml.data_prep.synthetic.people.painting import paint
from cml.data_prep.synthetic.people.poses import sample_angles, sample_proportions
from cml.data_prep.synthetic.photographs import Photos, sample_background, sample_photos
from cml.data_prep.synthetic.random_choice import Rng

__all__ = ["JOINTS", "People", "draw_people"]


class People(NamedTuple):
    """Drawn people and where their joints are."""

    images: UInt8  # (N, size, size, 3) RGB
    # (N, 16, 3): x and y in pixels, the first pixel's centre at 0.5, and 1 where the joint is in the image, else 0;
    # joints that something hides count as visible: a person who labels a photograph guesses those too
    keypoints: Float32


def draw_people(
    count: int,
    *,
    size: int = 64,  # side of the pictures, in pixels
    seed: int = 0,
    workers: int = 1,
) -> People:
    """Draw people in random poses. Several workers are worth it from some 2,000 pictures on."""
    draw = functools.partial(_draw_person, photos=sample_photos())
    return People(*draw_items("draw_people", draw, count, size=size, seed=seed, workers=workers))


def _draw_person(rng: Rng, size: int, photos: Photos) -> tuple[UInt8, Float32]:
    """One image (size, size, 3) and its keypoints (16, 3). Noise comes last: what is before it suits any size."""
    figure = pose_figure(sample_angles(rng), sample_proportions(rng))
    clothes = sample_clothes(rng)
    yaw = rng.normal(0.0, 35.0) if rng.random() < 0.45 else rng.uniform(-180.0, 180.0)  # from the front more often
    view = turn("z", rng.normal(0.0, 4.0)) @ turn("x", rng.normal(6.0, 9.0)) @ turn("y", yaw)  # figure to camera
    distance, joints = rng.uniform(8.0, 20.0), figure.joints @ view.T
    joints = joints[:, :2] * (distance / (distance - joints[:, 2:]))  # (16, 2), y up; at depth 0 sizes are kept
    framing = _sample_framing(rng, joints)  # (2, 3), to the unit square
    angle = rng.uniform(0, math.pi)
    light = np.array([math.cos(angle), -math.sin(angle)])  # from anywhere above

    oversampling = 3 if size <= 96 else 2
    side = size * oversampling
    background = sample_background(rng, photos, size)
    scene = background.resize((side, side), Image.Resampling.NEAREST)
    canvas = ImageDraw.Draw(scene)
    for _ in range(int(rng.integers(0, 7))):
        _add_clutter(rng, canvas, side)
    to_canvas = side * framing
    to_canvas[:, 2] -= 0.5  # Pillow's coordinates are those of pixel centres
    paint(canvas, body_parts(figure, clothes, view), to_canvas, distance, light)
    if rng.random() < 0.3:
        _add_occluder(rng, scene, background)
    scene = scene.reduce(oversampling)
    if rng.random() < 0.3:
        scene = scene.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 0.9) * size / 64))
    image = relight(rng, scene)

    places = (size * (joints @ framing[:, :2].T + framing[:, 2])).astype(np.float32)  # (16, 2)
    inside = np.all((places >= 0) & (places < size), axis=1, keepdims=True)
    return image, np.concatenate([places, inside], axis=1, dtype=np.float32)


def _sample_framing(rng: Rng, joints: Float64) -> Float64:
    """The affine map (2, 3) of projected joints (16, 2) to the unit square, y down, as a person crop would lie."""
    low, high = joints.min(0), joints.max(0)
    extent = max(float((high - low).max()), 1.8)  # a curled-up person is not enlarged without bounds
    scale = (rng.uniform(0.64, 0.9) if rng.random() < 0.9 else rng.uniform(0.9, 1.1)) / extent
    middle = (low + high) / 2
    centre = 0.5 + np.clip(rng.normal(0.0, 0.035, 2), -0.1, 0.1)
    return np.array([[scale, 0.0, centre[0] - scale * middle[0]], [0.0, -scale, centre[1] + scale * middle[1]]])


def _add_clutter(rng: Rng, canvas: ImageDraw.ImageDraw, side: int) -> None:
    """Behind the person: a patch, a disc, or a bar as thick as a limb in two tones."""
    x, y, angle = side * rng.random(), side * rng.random(), math.pi * rng.random()
    length, width = side * rng.uniform(0.1, 0.5), side * rng.uniform(0.02, 0.09)
    kind, brightness, colour = rng.random(), rng.uniform(0.6, 1.2), _colour(rng)
    if kind < 0.25:
        canvas.ellipse([x - length / 3, y - length / 3, x + length / 3, y + length / 3], fill=colour)
    elif kind < 0.5:
        canvas.polygon(_bar(x, y, angle, length, 3 * width), fill=colour)
    else:
        canvas.polygon(_bar(x, y, angle, length, width), fill=colour)
        colour = tuple(int(brightness * channel) for channel in colour)
        canvas.polygon(_bar(x, y, angle, 0.96 * length, 0.5 * width), fill=colour)


def _add_occluder(rng: Rng, scene: Image.Image, background: Image.Image) -> None:
    """In front of the person: a plain or textured bar or box that covers a tenth of the picture at most."""
    side = scene.width
    x, y, angle = side * rng.random(), side * rng.random(), math.pi * rng.random()
    outline = _bar(x, y, angle, side * rng.uniform(0.2, 0.9), side * rng.uniform(0.03, 0.11))
    if rng.random() < 0.5:
        ImageDraw.Draw(scene).polygon(outline, fill=_colour(rng))
        return
    mask = Image.new("L", scene.size)
    ImageDraw.Draw(mask).polygon(outline, fill=255)
    scene.paste(background.transpose(Image.Transpose.ROTATE_180).resize(scene.size), mask=mask)


def _colour(rng: Rng) -> tuple[int, ...]:
    return tuple(rng.integers(20, 236, 3).tolist())


def _bar(x: float, y: float, angle: float, length: float, width: float) -> list[tuple[float, float]]:
    along = length / 2 * math.cos(angle), length / 2 * math.sin(angle)
    across = -width / 2 * math.sin(angle), width / 2 * math.cos(angle)
    corners = ((-1, -1), (1, -1), (1, 1), (-1, 1))
    return [(x + a * along[0] + b * across[0], y + a * along[1] + b * across[1]) for a, b in corners]
