"""Drawn furnished rooms with exact masks of walls, floor and ceiling: light is traced, the picture then developed."""

import functools
from typing import NamedTuple

import numpy as np
from PIL import Image

from cml.array_types import Float32, UInt8
from cml.data_prep.synthetic.draw_items import draw_items
from cml.data_prep.synthetic.photographs import sample_photos
from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.rooms.furniture import ROOMS, WET, furnish
from cml.data_prep.synthetic.rooms.ray_tracing import Light, trace
from cml.data_prep.synthetic.rooms.surfaces import Photo, Surface
from cml.data_prep.synthetic.rooms.view import CEILING_FACE, View, mask_of, sample_view
from cml.data_prep.synthetic.rooms.walls import sample_surfaces

_PHOTO_SIDE = 96  # pixels of the photographs behind windows and in frames


class Rooms(NamedTuple):
    """Drawn rooms and their layouts."""

    images: UInt8  # (N, size, size, 3) RGB
    masks: UInt8  # (N, size, size) ids of ``layout_masks.SURFACES``: what is behind the furniture at pixels' middles


def draw_rooms(
    count: int,
    *,
    size: int = 64,  # side of the pictures, in pixels
    seed: int = 0,
    workers: int = 1,
) -> Rooms:
    """Draw furnished rooms. Several workers are worth it from some 500 rooms on."""
    return Rooms(*draw_items("draw_rooms", _draw_room, count, size=size, seed=seed, workers=workers))


def _draw_room(rng: Rng, size: int) -> tuple[UInt8, UInt8]:
    """One image (size, size, 3) and its mask (size, size). Noise comes last: what is before it suits any size."""
    view = sample_view(rng)
    kind = list(ROOMS)[int(rng.choice(len(ROOMS), p=_KINDS))]
    surfaces = sample_surfaces(rng, view.room, _photos(), kind in WET)
    pieces = furnish(rng, kind, view.room, view.eye)
    light = _sample_light(rng, view, surfaces)
    finer = 2 if size <= 128 else 1
    traced = trace(view, view.rays(size * finer), surfaces, pieces, light)
    colours = traced.reshape(3, size, finer, size, finer).mean(axis=(2, 4)).transpose(1, 2, 0)
    mask = mask_of(view, view.leave(view.rays(size))[1])
    return _develop(rng, np.ascontiguousarray(colours)), mask


def _sample_light(rng: Rng, view: View, surfaces: list[Surface]) -> Light:
    """Light from all around, from the middle of the ceiling and from each window."""
    warmth = rng.normal(0, 0.12)
    white = np.array([1 + warmth, 1.0, 1 - warmth])
    lamps, powers = [], []
    if rng.random() < 0.8:
        x, z = rng.uniform(0.25, 0.75, 2) * view.room[[0, 2]]
        lamps.append([x, view.room[1] - rng.uniform(0.1, 0.8), z])
        powers.append(white * rng.uniform(0.4, 2.2))
    for face, surface in enumerate(surfaces):
        for patch in surface.patches:
            if patch.kind == "photo" and patch.glow > 0 and face != CEILING_FACE:
                along, up = sum(patch.box[:2]) / 2, sum(patch.box[2:]) / 2
                out = 0.25 if face % 2 == 0 else view.room[face // 2] - 0.25
                lamps.append([out, up, along] if face < 2 else [along, up, out])
                powers.append(np.array([0.9, 1.0, 1.15]) * patch.glow * rng.uniform(0.4, 1.2))
    ambient = (white * rng.uniform(0.25, 0.7)).astype(np.float32)
    places, shining = (np.array(some, np.float32).reshape(-1, 3) for some in (lamps, powers))
    return Light(ambient, places, shining, rng.uniform(0.05, 0.3))


def _develop(rng: Rng, colours: Float32) -> UInt8:
    """Develop linear colours (n, n, 3): exposure, white balance, vignette, a screen's curve, the camera's noise."""
    exposure = rng.uniform(0.55, 1.1) / max(float(np.percentile(colours, 90)), 1e-3)
    balance = (1 + np.clip(rng.normal(0, 0.06, 3), -0.15, 0.15)).astype(np.float32)
    place = np.linspace(-1, 1, len(colours), dtype=np.float32)
    vignette = 1 - rng.uniform(0, 0.25) * (place[:, None] ** 2 + place[None, :] ** 2)[..., None] / 2
    shown = np.clip(colours * (exposure * balance) * vignette, 0, 1) ** np.float32(1 / 2.2)
    contrast, noise = rng.uniform(0.8, 1.1), rng.uniform(1, 6)
    pixels = 255 * ((shown - 0.5) * contrast + 0.5) + noise * rng.standard_normal(shown.shape, np.float32)
    return np.clip(pixels, 0, 255).astype(np.uint8)


@functools.cache
def _photos() -> tuple[Photo, ...]:
    size = (_PHOTO_SIDE * 3 // 2, _PHOTO_SIDE)
    shown = (np.asarray(photo.resize(size, Image.Resampling.BOX), np.float32) for photo in sample_photos())
    return tuple((photo / np.float32(255)) ** np.float32(2.2) for photo in shown)


_KINDS = np.array([{"empty": 0.08, "bath": 0.12}.get(kind, 0.16) for kind in ROOMS])
