"""Drawn heads, turned any way round, over photographs: ellipsoids cut with each pixel's ray, with exact rotations."""

import functools
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from scipy.spatial.transform import Rotation

from cml.array_types import Bools, Float64, UInt8
from cml.data_prep.synthetic.draw_items import draw_items
from cml.data_prep.synthetic.lighting import relight
from cml.data_prep.synthetic.photographs import Photos, sample_background, sample_photos
from cml.data_prep.synthetic.random_choice import Rng, pick

_OVERSAMPLING = 2


_PITCH, _ROLL = 35.0, 25.0  # degrees, standard deviations are half of these; the yaw is any


_SKINS = ((255, 219, 190), (238, 190, 155), (205, 150, 110), (150, 100, 70), (95, 62, 45))


_HAIRS = ((30, 24, 20), (75, 48, 30), (140, 95, 50), (205, 170, 105), (150, 145, 140), (120, 45, 25))


class _Looks(NamedTuple):
    skin: Float64  # a colour (3,), as are the next three
    hair: Float64
    shirt: Float64
    eyes: Float64
    hairline: float  # lower is more hair
    wide: float
    long: float
    glasses: bool


def draw_heads(
    count: int,
    *,
    size: int = 64,  # side of the pictures, in pixels
    seed: int = 0,
    workers: int = 1,
) -> tuple[UInt8, Float64]:
    """Draw heads with any yaw, and with pitch and roll as people hold their heads.

    Returns pictures in RGB, (N, size, size, 3), and rotations, (N, 4): unit quaternions [x, y, z, w] with w >= 0 from
    the head to the camera, whose x is to the right, y down and z away from it. [0, 0, 0, 1] looks into the camera.
    """
    draw = functools.partial(_draw_head, photos=sample_photos())
    images, rotations = draw_items("draw_heads", draw, count, size=size, seed=seed, workers=workers)
    return images, rotations


def _draw_head(rng: Rng, size: int, photos: Photos) -> tuple[UInt8, Float64]:
    pitch, roll = np.clip(rng.normal(0, 0.5, 2), -1, 1) * (_PITCH, _ROLL)
    turn = Rotation.from_euler("YXZ", [rng.uniform(-180, 180), pitch, roll], degrees=True)
    looks = _sample_looks(rng)
    scale, across, down = rng.uniform(0.26, 0.36), *rng.uniform(-0.06, 0.06, 2)  # of the image's side
    light = np.array([rng.uniform(-1, 1), rng.uniform(-1, 0.3), -1.0])
    background = sample_background(rng, photos, size)
    side = size * _OVERSAMPLING
    pixels = np.array(background.resize((side, side), Image.Resampling.NEAREST), np.float64)
    at = (np.arange(side) + 0.5) / side - 0.5  # (side,)
    _render(pixels, (at - across) / scale, (at - down + 0.03) / scale, turn.as_matrix(), looks, light)
    scene = Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).reduce(_OVERSAMPLING)
    return relight(rng, scene), np.asarray(turn.as_quat(canonical=True))


def _sample_looks(rng: Rng) -> _Looks:
    def near(colours: tuple[tuple[int, int, int], ...]) -> Float64:
        return (np.array(pick(rng, colours)) * rng.uniform(0.85, 1.1)).clip(0, 255)

    skin, hair = near(_SKINS), near(_HAIRS)
    shirt, eyes = rng.uniform(20, 235, 3), rng.uniform(20, 120, 3)
    hairline = rng.uniform(0.1, 0.5) if rng.random() < 0.9 else 2.0  # nobody's hair begins so high: bald
    wide, long = rng.uniform(0.7, 0.82), rng.uniform(0.95, 1.08)
    return _Looks(skin, hair, shirt, eyes, hairline, wide, long, glasses=bool(rng.random() < 0.2))


def _render(pixels: Float64, x: Float64, y: Float64, turn: Float64, looks: _Looks, light: Float64) -> None:
    """Paint a head over ``pixels`` (H, W, 3), whose columns and rows lie at ``x`` (W,) and ``y`` (H,), in heads."""
    parts: list[tuple[Any, Any, Float64, Float64]] = [  # ellipsoids: centre, semi-axes, colour, rotation
        ((0, 0, 0), (looks.wide, looks.long, 0.9), looks.skin, turn),
        ((0, 0, 0), (1.07 * looks.wide, 1.07 * looks.long, 0.97), looks.hair, turn),
        ((0, 0.14, -0.92), (0.12, 0.23, 0.2), 0.96 * looks.skin, turn),
        *(((side * looks.wide, 0.04, 0.06), (0.09, 0.2, 0.14), 0.92 * looks.skin, turn) for side in (-1, 1)),
        ((0, 1.15, 0.12), (0.42, 0.8, 0.42), 0.85 * looks.skin, np.eye(3)),
        ((0, 2.35, 0.25), (1.7, 1.0, 0.8), looks.shirt, np.eye(3)),
    ]
    depth = np.full(pixels.shape[:2], np.inf)
    light = light / np.linalg.norm(light)
    for place, (middle, axes, plain, own) in enumerate(parts):
        centre = own @ middle
        reach = np.linalg.norm(own * axes, axis=1)  # of its box, along x, y and z
        columns, rows = (
            slice(*np.searchsorted(line, [at - far, at + far]))
            for line, at, far in zip((x, y), centre[:2], reach[:2], strict=True)
        )
        to_unit = own.T / np.array(axes)[:, None]  # (3, 3), the part's ellipsoid to the unit sphere
        across, down = np.meshgrid(x[columns] - centre[0], y[rows] - centre[1])
        start = np.stack([across, down, np.full_like(across, -centre[2])], axis=-1) @ to_unit.T  # (h, w, 3)
        along = to_unit[:, 2]
        a, b, c = along @ along, start @ along, (start**2).sum(axis=-1) - 1
        hit = b * b > a * c
        near = (-b - np.sqrt(np.where(hit, b * b - a * c, 0))) / a
        point = start + near[..., None] * along  # on the unit sphere
        if place == 1:
            hit &= 0.7 * point[..., 2] - 0.75 * point[..., 1] > looks.hairline
        hit &= near < depth[rows, columns]
        colour = np.broadcast_to(plain, point.shape) if place else _face(point, looks)
        normal = point @ to_unit
        normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
        shade = 0.5 + 0.6 * np.clip(normal @ light, 0, 1)
        pixels[rows, columns][hit] = (colour * shade[..., None])[hit]
        depth[rows, columns][hit] = near[hit]


def _face(point: Float64, looks: _Looks) -> Float64:
    """The skull's colours (h, w, 3) at points (h, w, 3) of the unit sphere: skin, eyes, brows, mouth, glasses."""
    x, y, front = np.abs(point[..., 0]), point[..., 1], point[..., 2] < 0
    colour = np.tile(looks.skin, (*x.shape, 1))

    def _inside(right: float, below: float, wide: float, high: float) -> Bools:
        """An ellipse on the front and its mirror image on the other side."""
        return front & (((x - right) / wide) ** 2 + ((y - below) / high) ** 2 < 1)

    if looks.glasses:
        colour[_inside(0.4, -0.12, 0.29, 0.22) & ~_inside(0.4, -0.12, 0.24, 0.17)] = 25
        colour[front & (x < 0.13) & (np.abs(y + 0.14) < 0.03)] = 25
    colour[_inside(0.4, -0.12, 0.19, 0.1)] = 240
    colour[_inside(0.4, -0.12, 0.085, 0.1)] = looks.eyes
    colour[_inside(0.4, -0.34, 0.23, 0.05)] = 0.7 * looks.hair
    colour[_inside(0.0, 0.56, 0.28, 0.08)] = (170, 70, 70)
    return colour
