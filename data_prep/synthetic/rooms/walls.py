"""Walls, floor and ceiling of drawn rooms: materials, and what lies flat on them and so never hides their borders."""

from dataclasses import replace
from itertools import product
from typing import Literal, NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.data_prep.synthetic.random_choice import Rng, pick
from cml.data_prep.synthetic.rooms import materials
from cml.data_prep.synthetic.rooms.materials import Material, darker, sample_cloth, tint
from cml.data_prep.synthetic.rooms.surfaces import Patch, Photo, Surface

Photos = tuple[Photo, ...]


class _Style(NamedTuple):
    trim: Material
    skirting: float
    cornice: float
    panelling: Material | None
    panel_height: float


def sample_surfaces(
    rng: Rng,
    room: Float64,  # width, height and depth of the room in metres, (3,)
    photos: Photos,
    wet: bool,
) -> list[Surface]:
    """Draw the walls, the floor and the ceiling of a room at random."""
    trim = tint(rng, light=(0.85, 0.98), vivid=(0, 0.08)) if rng.random() < 0.6 else materials.sample_wood(rng).colour
    paint = materials.sample_tiles(rng) if wet and rng.random() < 0.5 else materials.sample_paint(rng)
    accent = materials.sample_paint(rng) if rng.random() < 0.3 else paint
    panelling = None
    if rng.random() < (0.5 if wet else 0.15):
        panelling = materials.sample_tiles(rng) if wet else materials.sample_wood(rng)
    skirting = rng.uniform(0.05, 0.16) if rng.random() < 0.7 else 0.0
    cornice = rng.uniform(0.04, 0.14) if rng.random() < 0.35 else 0.0
    style = _Style(Material(trim, uneven=0.01), skirting, cornice, panelling, rng.uniform(0.8, 1.5))
    special = int(rng.integers(4))
    walls = [
        _wall(rng, style, accent if number == special else paint, float(length), float(room[1]), photos)
        for number, length in enumerate((room[2], room[2], room[0], room[0]))
    ]
    return [*walls[:2], _floor(rng, room, wet), _ceiling(rng, room, paint), *walls[2:]]


def _wall(rng: Rng, style: _Style, paint: Material, length: float, height: float, photos: Photos) -> Surface:
    bands = []
    if style.panelling is not None:
        top = style.panel_height
        bands += [(style.panelling, 0.0, top), (style.trim, top, top + 0.05)]
    if style.skirting:
        bands.append((style.trim, 0.0, style.skirting))
    if style.cornice:
        bands.append((style.trim, height - style.cornice, height))
    patches: list[Patch] = []
    taken: list[tuple[float, float]] = []
    for make, chance in ((_window, 0.5), (_door, 0.3), (_window, 0.2), (_picture, 0.5), (_picture, 0.3)):
        if rng.random() < chance:
            width, added = make(rng, style, height, photos)
            for _ in range(3):
                left = rng.uniform(0.05, max(0.06, length - width - 0.05))
                if left + width < length and all(left > end or left + width < start for start, end in taken):
                    taken.append((left, left + width))
                    patches += [
                        replace(patch, box=(patch.box[0] + left, patch.box[1] + left, *patch.box[2:]))
                        for patch in added
                    ]
                    break
    return Surface(paint, tuple(bands), tuple(patches))


def _window(rng: Rng, style: _Style, height: float, photos: Photos) -> tuple[float, list[Patch]]:
    width = rng.uniform(0.6, 2.2)
    low = rng.uniform(0.0, 0.25) if rng.random() < 0.15 else rng.uniform(0.6, 1.1)
    high = min(height - 0.1, rng.uniform(1.9, 2.5))
    frame = rng.uniform(0.04, 0.1)
    bars = (int(rng.integers(1, 4)), int(rng.integers(1, 3)))
    bright, pane = rng.uniform(0.5, 2.5), (frame, width - frame, low + frame, high - frame)
    patches = [
        Patch("flat", (0, width, low, high), style.trim),
        Patch("photo", pane, style.trim, _outside(rng, photos), bars, bright),
    ]
    kind = rng.random()
    if kind < 0.4:  # curtains
        cloth, wide, bottom = sample_cloth(rng), rng.uniform(0.15, 0.5), rng.choice([0.03, low - 0.1])
        top = min(height - 0.03, high + 0.12)
        sides = [(-0.12, wide), (width - wide, width + 0.12)]
        patches += [Patch("curtain", (left, right, max(0.02, bottom), top), cloth) for left, right in sides]
    elif kind < 0.55:  # a blind, some way down
        slats = Material(style.trim.colour, "tiles", darker(style.trim.colour, 0.5), (9.0, 0.06), 0.25)
        down = low + (high - low) * rng.uniform(0.1, 0.8)
        patches.append(Patch("flat", (frame, width - frame, down, high - frame), slats, glow=0.25))
    return width, patches


def _door(rng: Rng, style: _Style, height: float, photos: Photos) -> tuple[float, list[Patch]]:
    width, high = rng.uniform(0.75, 1.0), min(height - 0.08, rng.uniform(1.98, 2.15))
    frame = rng.uniform(0.05, 0.1)
    leaf = materials.sample_wood(rng).colour if rng.random() < 0.5 else style.trim.colour
    if rng.random() < 0.15:  # open, and dark behind
        leaf = darker(leaf, 0.08)
    panels = (int(rng.integers(1, 3)), int(rng.integers(1, 4)))
    knob = (frame + 0.06, frame + 0.15, 0.98, 1.06)
    return width, [
        Patch("flat", (0, width, 0, high), style.trim),
        Patch("door", (frame, width - frame, 0, high - frame), Material(leaf, uneven=0.02), bars=panels),
        Patch("round", knob, Material(materials.linear(0.75, 0.72, 0.6))),
    ]


def _picture(rng: Rng, style: _Style, height: float, photos: Photos) -> tuple[float, list[Patch]]:
    width, tall = rng.uniform(0.25, 1.2), rng.uniform(0.25, 0.9)
    middle = rng.uniform(1.4, 1.8)
    box = (0.0, width, middle - tall / 2, min(height - 0.05, middle + tall / 2))
    frame = rng.uniform(0.015, 0.05)
    inner = (frame, width - frame, box[2] + frame, box[3] - frame)
    rim = Patch("flat", box, Material(tint(rng, light=(0.05, 0.9), vivid=(0, 0.5))))
    kind = rng.random()
    if kind < 0.5:
        return width, [rim, Patch("photo", inner, style.trim, _crop(rng, photos))]
    if kind < 0.75:  # a print
        return width, [rim, Patch("flat", inner, sample_cloth(rng))]
    if kind < 0.9:  # a mirror or a dark screen
        shine = darker((1, 1, 1), rng.choice([0.01, 0.35]))
        return width, [rim, Patch("flat", inner, Material(shine, uneven=0.3, key=materials.sample_key(rng)))]
    return width, [Patch("round", (0, width, middle - width / 2, middle + width / 2), rim.material)]  # a clock, a plate


def _floor(rng: Rng, room: Float64, wet: bool) -> Surface:
    kind = rng.random() + (0.5 if wet else 0.0)
    material = (materials.sample_wood if kind < 0.5 else sample_cloth if kind < 0.75 else materials.sample_tiles)(rng)
    patches: list[Patch] = []
    if rng.random() < 0.4:
        wide, deep = rng.uniform(0.2, 0.6, 2) * (room[0], room[2])
        x, z = rng.uniform(0.35, 0.65, 2) * (room[0], room[2])
        shape: Literal["flat", "round"] = "round" if rng.random() < 0.3 else "flat"
        rug = sample_cloth(rng)
        for grown, cloth in ((0.12, Material(darker(rug.second, 0.8))), (0.0, rug)):
            box = (x - wide / 2 - grown, x + wide / 2 + grown, z - deep / 2 - grown, z + deep / 2 + grown)
            patches.append(Patch(shape, box, cloth))
    return Surface(material, (), tuple(patches))


def _ceiling(rng: Rng, room: Float64, paint: Material) -> Surface:
    base = tint(rng, light=(0.86, 0.99), vivid=(0, 0.06))
    material = Material(base, uneven=rng.uniform(0, 0.04), key=materials.sample_key(rng))
    kind = rng.random()
    if kind < 0.1:
        material = materials.sample_wood(rng)
    elif kind < 0.2:  # panels, as in offices
        material = Material(base, "tiles", darker(base, 0.5), (rng.uniform(0.4, 0.7),) * 2, 0.05)
    elif kind < 0.3:  # as the walls
        material = Material(darker(paint.colour, 1.05), uneven=0.03)
    patches, lamp = list[Patch](), Material((1.0, 0.97, 0.88))
    x, z = rng.uniform(0.35, 0.65, 2) * (room[0], room[2])
    kind = rng.random()
    if kind < 0.3:
        r = rng.uniform(0.12, 0.3)
        patches.append(Patch("round", (x - r, x + r, z - r, z + r), lamp, glow=1.6))
    elif kind < 0.45:  # spots or strips in rows
        wide, deep = (0.1, 0.1) if rng.random() < 0.6 else (0.25, 1.1)
        for across, along in product(np.arange(0.6, room[0] - 0.4, 1.3), np.arange(0.6, room[2] - 0.6, 1.6)):
            patches.append(Patch("flat", (across, across + wide, along, along + deep), lamp, glow=1.8))
    return Surface(material, (), tuple(patches))


def _outside(rng: Rng, photos: Photos) -> Photo:
    """What is behind a window: the upper part of the first photograph, which has a sky, or sky over green."""
    if rng.random() < 0.4:
        return _crop(rng, (photos[0][: photos[0].shape[0] * 3 // 4],))
    sky = np.array(materials.linear(rng.uniform(0.6, 0.95), rng.uniform(0.75, 1), 1), np.float32)
    haze = np.array(materials.linear(0.95, 0.95, 0.95), np.float32)
    green = np.array(materials.linear(rng.uniform(0.15, 0.5), rng.uniform(0.3, 0.6), rng.uniform(0.1, 0.4)), np.float32)
    line = np.arange(48, dtype=np.float32)
    height = line[:, None] / 48
    across, down = np.meshgrid(line / np.float32(5), line / np.float32(5))
    bumps = materials.sample_noise(across, down, materials.sample_key(rng))
    ground = (height + 0.35 * bumps > rng.uniform(0.5, 1.2))[..., None]
    return np.where(ground, green * (0.5 + bumps[..., None]), sky + (haze - sky) * height[..., None])


def _crop(rng: Rng, photos: Photos) -> Photo:
    """A part of a photograph in other colours, as a view or a picture."""
    photo = pick(rng, photos)
    height, width = photo.shape[:2]
    tall, wide = (int(length * rng.uniform(0.3, 0.9)) for length in (height, width))
    top, left = int(rng.integers(height - tall + 1)), int(rng.integers(width - wide + 1))
    shown = photo[top : top + tall, left : left + wide]
    if rng.random() < 0.5:
        shown = shown[:, ::-1]
    cast = 1 + rng.uniform(-0.3, 0.3, 3)
    return (shown * cast.astype(np.float32)).astype(np.float32)
