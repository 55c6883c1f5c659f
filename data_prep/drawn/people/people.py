"""The embedded dataset: drawn people in random poses over photographs, labelled with the 16 MPII joints. No download.

A jointed figure (``figure.py``) is posed, dressed, photographed from a random side and painted over a crop of
one of scikit-learn's two sample photographs, among clutter and under changing light. It is for demonstrations, tests
and comparisons of losses on a small machine. Not for: training anything meant for photographs of real people.
"""

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from cml.data_prep.drawn.chunks import draw_items
from cml.data_prep.drawn.people.clothes import body_parts, paint, sample_clothes
from cml.data_prep.drawn.people.figure import JOINTS, pose_figure, turn
from cml.data_prep.drawn.people.poses import sample_angles, sample_proportions
from cml.data_prep.drawn.photographs import relight, sample_background, sample_photos

__all__ = ["JOINTS", "People", "draw_people"]

Rng = np.random.Generator


@dataclass(frozen=True)
class People:
    """Drawn people and where their joints are."""

    images: NDArray[np.uint8]  # (N, size, size, 3) RGB
    # (N, 16, 3): x and y in pixels, the first pixel's centre at 0.5, and 1 where the joint lies inside the
    # image, 0 where it lies outside. Joints hidden by the body or by clutter count as visible: a person who
    # labels a photograph guesses those too.
    keypoints: NDArray[np.float32]


def draw_people(count: int, *, size: int = 64, seed: int = 0, workers: int = 1) -> People:
    """Draw people in random poses.

    Item i depends on ``seed``, ``size`` and i alone, so a longer run begins with the items of a shorter one. Another
    size shows the same people, each with other noise.

    Arguments and errors are those of ``draw_items``; several workers are worth it from some 2,000 images on.
    """
    draw = functools.partial(_draw_person, photos=sample_photos())
    images, keypoints = draw_items("draw_people", draw, count, size=size, seed=seed, workers=workers)
    return People(np.stack(images), np.stack(keypoints))


def _draw_person(rng: Rng, size: int, photos: tuple[Image.Image, ...]) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """One image (size, size, 3) and its keypoints (16, 3). Noise comes last: what is before it suits any size."""
    figure = pose_figure(sample_angles(rng), sample_proportions(rng))
    clothes = sample_clothes(rng)
    view = _sample_view(rng)
    distance = rng.uniform(8.0, 20.0)
    joints = _perspective(figure.joints @ view.T, distance)
    framing = _sample_framing(rng, joints)  # (2, 3), to the unit square
    angle = rng.uniform(0, math.pi)
    light = np.array([math.cos(angle), -math.sin(angle)])  # from anywhere above

    oversampling = 3 if size <= 96 else 2
    side = size * oversampling
    photo = photos[int(rng.integers(len(photos)))]
    background = sample_background(rng, photo, size)
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


def _sample_view(rng: Rng) -> NDArray[np.float64]:
    """The rotation (3, 3) from the figure to the camera: any side, the front more often, somewhat from above."""
    yaw = rng.normal(0.0, 35.0) if rng.random() < 0.45 else rng.uniform(-180.0, 180.0)
    return turn("z", rng.normal(0.0, 4.0)) @ turn("x", rng.normal(6.0, 9.0)) @ turn("y", yaw)


def _perspective(points: NDArray[np.float64], distance: float) -> NDArray[np.float64]:
    """Project (N, 3) camera coordinates to (N, 2), y up; what lies at depth 0 keeps its size."""
    return points[:, :2] * (distance / (distance - points[:, 2:]))


def _sample_framing(rng: Rng, joints: NDArray[np.float64]) -> NDArray[np.float64]:
    """The affine map (2, 3) of projected joints (16, 2) to the unit square, y down, as a person crop would lie."""
    low, high = joints.min(0), joints.max(0)
    extent = max(float((high - low).max()), 1.8)  # a curled-up person is not enlarged without bounds
    fill = rng.uniform(0.64, 0.9) if rng.random() < 0.9 else rng.uniform(0.9, 1.1)
    scale = fill / extent
    middle = (low + high) / 2
    centre = 0.5 + np.clip(rng.normal(0.0, 0.035, 2), -0.1, 0.1)
    return np.array([[scale, 0.0, centre[0] - scale * middle[0]], [0.0, -scale, centre[1] + scale * middle[1]]])


def _add_clutter(rng: Rng, canvas: ImageDraw.ImageDraw, side: int) -> None:
    """Behind the person: a patch, a disc, or a bar as thick as a limb in two tones."""
    x, y, angle = side * rng.random(), side * rng.random(), math.pi * rng.random()
    length, width = side * rng.uniform(0.1, 0.5), side * rng.uniform(0.02, 0.09)
    kind, brightness = rng.random(), rng.uniform(0.6, 1.2)
    colour = tuple(rng.integers(20, 236, 3).tolist())
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
    length, width = side * rng.uniform(0.2, 0.9), side * rng.uniform(0.03, 0.11)
    outline = _bar(x, y, angle, length, width)
    if rng.random() < 0.5:
        ImageDraw.Draw(scene).polygon(outline, fill=tuple(rng.integers(20, 236, 3).tolist()))
        return
    mask = Image.new("L", scene.size)
    ImageDraw.Draw(mask).polygon(outline, fill=255)
    scene.paste(background.transpose(Image.Transpose.ROTATE_180).resize(scene.size), mask=mask)


def _bar(x: float, y: float, angle: float, length: float, width: float) -> list[tuple[float, float]]:
    along = length / 2 * math.cos(angle), length / 2 * math.sin(angle)
    across = -width / 2 * math.sin(angle), width / 2 * math.cos(angle)
    return [
        (x + a * along[0] + b * across[0], y + a * along[1] + b * across[1])
        for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
