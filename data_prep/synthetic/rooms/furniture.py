"""Furniture of drawn rooms: what stands in which kind of room, where, and of which boxes and balls it is made."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product

import numpy as np

from cml.array_types import Float64
from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.rooms.materials import (
    Material,
    darker,
    linear,
    sample_cloth,
    sample_key,
    sample_wood,
    tint,
)
from cml.data_prep.synthetic.rooms.ray_tracing import Part, Piece

Furniture = tuple[float, float, list[Part]]  # width, depth, and what it is made of


Make = Callable[[Rng, float], Furniture]  # (rng, height of the room) to a piece


def _box(left: float, right: float, low: float, high: float, back: float, front: float, material: Material) -> Part:
    """A box between six planes of the piece's frame."""
    ends = ((left, right), (low, high), (back, front))
    centre = tuple((a + b) / 2 for a, b in ends)
    half = tuple(max(0.005, abs(b - a) / 2) for a, b in ends)
    return Part(centre, half, material)  # type: ignore[arg-type]


def _sofa(rng: Rng, height: float) -> Furniture:
    w, d, back = rng.uniform(0.8, 2.3), rng.uniform(0.8, 1.0), rng.uniform(0.65, 0.95)
    cloth, seat, arm = sample_cloth(rng), rng.uniform(0.36, 0.46), rng.uniform(0.1, 0.22)
    parts = [
        _box(-w / 2, w / 2, 0.06, seat, -d / 2, d / 2, cloth),
        _box(-w / 2, w / 2, seat, back, -d / 2, -d / 2 + 0.22, cloth),
        _box(-w / 2, -w / 2 + arm, seat, seat + 0.18, -d / 2, d / 2, cloth),
        _box(w / 2 - arm, w / 2, seat, seat + 0.18, -d / 2, d / 2, cloth),
    ]
    for _ in range(int(rng.integers(0, 3))):
        x = rng.uniform(-w / 2 + arm + 0.2, max(-w / 2 + arm + 0.21, w / 2 - arm - 0.2))
        parts.append(Part((x, seat + 0.2, -d / 2 + 0.3), (0.2, 0.2, 0.1), sample_cloth(rng), "ball"))
    return w, d, parts


def _bed(rng: Rng, height: float) -> Furniture:
    w, d, top = rng.uniform(0.9, 1.9), 2.05, rng.uniform(0.4, 0.6)
    wood, sheet, cover = sample_wood(rng), Material(tint(rng, light=(0.8, 1), vivid=(0, 0.1))), sample_cloth(rng)
    parts = [
        _box(-w / 2, w / 2, 0.05, top - 0.15, -d / 2, d / 2, wood),
        _box(-w / 2, w / 2, top - 0.15, top, -d / 2, d / 2, sheet),
        _box(-w / 2 - 0.03, w / 2 + 0.03, top - 0.25, top + 0.05, -d / 2 + rng.uniform(0.4, 1.2), d / 2 + 0.02, cover),
        _box(-w / 2, w / 2, 0, rng.uniform(0.7, 1.2), -d / 2, -d / 2 + 0.06, wood),
    ]
    pillows = 2 if w > 1.3 else 1
    for number in range(pillows):
        x = w * ((number + 0.5) / pillows - 0.5)
        parts.append(Part((x, top + 0.07, -d / 2 + 0.3), (0.38 * w / pillows, 0.1, 0.2), sheet, "ball"))
    return w, d, parts


def _table(rng: Rng, height: float) -> Furniture:
    low = rng.random() < 0.35
    w, d, top = rng.uniform(0.7, 1.7), rng.uniform(0.55, 0.95), rng.uniform(0.35, 0.5) if low else rng.uniform(0.7, 0.8)
    wood = sample_wood(rng)
    parts = [_box(-w / 2, w / 2, top - 0.04, top, -d / 2, d / 2, wood), *_legs(w, d, top - 0.04, 0.05, wood)]
    for _ in range(int(rng.integers(0, 3))):
        x, z, r = rng.uniform(-0.35, 0.35) * w, rng.uniform(-0.3, 0.3) * d, rng.uniform(0.05, 0.13)
        shade = Material(tint(rng, light=(0.2, 0.95), vivid=(0, 0.8)))
        parts.append(Part((x, top + r, z), (r, r * rng.uniform(0.8, 2), r), shade, "ball"))
    return w, d, parts


def _chair(rng: Rng, height: float) -> Furniture:
    w, d, seat, back = 0.44, 0.46, 0.45, rng.uniform(0.8, 1.05)
    wood = sample_wood(rng) if rng.random() < 0.6 else sample_cloth(rng)
    board = _box(-w / 2, w / 2, seat - 0.05, seat, -d / 2, d / 2, wood)
    rest = _box(-w / 2, w / 2, seat, back, -d / 2, -d / 2 + 0.05, wood)
    return w, d, [board, rest, *_legs(w, d, seat - 0.05, 0.04, wood)]


def _cabinet(rng: Rng, height: float) -> Furniture:
    w, d = rng.uniform(0.45, 2.0), rng.uniform(0.38, 0.62)
    h = min(height - 0.05, rng.choice([rng.uniform(0.5, 1.1), rng.uniform(1.7, 2.5)]))
    plain = replace(sample_wood(rng), pattern="plain")
    parts = [_box(-w / 2, w / 2, 0.04, h, -d / 2, d / 2 - 0.02, plain)]
    across, up = max(1, round(w / rng.uniform(0.4, 0.6))), min(4, max(1, round(h / rng.uniform(0.35, 1.2))))
    face = replace(plain, colour=darker(plain.colour, rng.choice([0.8, 1.1, 1.25])))
    for column, row in product(range(across), range(up)):
        left, low = -w / 2 + w * column / across + 0.012, 0.06 + (h - 0.08) * row / up
        right, high = -w / 2 + w * (column + 1) / across - 0.012, 0.05 + (h - 0.08) * (row + 1) / up
        parts.append(_box(left, right, low, high - 0.01, d / 2 - 0.02, d / 2, face))
    if h < 1.2 and rng.random() < 0.4:  # a screen on it
        wide = min(w, rng.uniform(0.6, 1.3)) / 2
        parts.append(_box(-wide, wide, h + 0.05, h + 0.05 + 1.15 * wide, -0.05, 0.0, Material((0.01, 0.01, 0.012))))
    return w, d, parts


def _shelf(rng: Rng, height: float) -> Furniture:
    w, h, d = rng.uniform(0.5, 1.6), min(height - 0.1, rng.uniform(1.0, 2.3)), rng.uniform(0.25, 0.35)
    wood = replace(sample_wood(rng), pattern="plain")
    rows = max(2, round(h / 0.38))
    parts = [
        _box(-w / 2, w / 2, 0, h, -d / 2, -d / 2 + 0.02, replace(wood, colour=darker(wood.colour, 0.6))),
        _box(-w / 2, -w / 2 + 0.03, 0, h, -d / 2, d / 2, wood),
        _box(w / 2 - 0.03, w / 2, 0, h, -d / 2, d / 2, wood),
    ]
    for row in range(rows + 1):
        board = max(0.0, h * row / rows - 0.015)
        parts.append(_box(-w / 2, w / 2, board, h * row / rows + 0.015, -d / 2, d / 2, wood))
        if row < rows and rng.random() < 0.8:
            left, right = np.sort(rng.uniform(-w / 2 + 0.04, w / 2 - 0.04, 2))
            spines, gaps = (tint(rng, light=(dark, 0.9), vivid=(0.1, 0.8)) for dark in (0.2, 0.1))
            books = Material(spines, "bricks", gaps, (rng.uniform(0.05, 0.12), 4.0), 0.4, 0.4, sample_key(rng))
            top = h * row / rows + rng.uniform(0.5, 0.85) * h / rows
            parts.append(_box(left, right, h * row / rows + 0.015, top, -d / 2 + 0.03, d / 2 - 0.05, books))
    return w, d, parts


def _plant(rng: Rng, height: float) -> Furniture:
    pot, top = rng.uniform(0.12, 0.2), rng.uniform(0.6, min(1.9, height - 0.2))
    clay = Material(tint(rng, light=(0.3, 0.9), vivid=(0, 0.6)))
    green = linear(rng.uniform(0.1, 0.35), rng.uniform(0.3, 0.55), rng.uniform(0.08, 0.25))
    leaf = Material(green, "cloth", uneven=0.5)
    parts = [
        _box(-pot, pot, 0, 2 * pot, -pot, pot, clay),
        _box(-0.015, 0.015, 2 * pot, top - 0.2, -0.015, 0.015, Material(linear(0.35, 0.25, 0.15))),
    ]
    for _ in range(int(rng.integers(3, 7))):
        x, z = rng.normal(0, 0.13, 2)
        y, r = rng.uniform(2 * pot + 0.15, top), rng.uniform(0.1, 0.25)
        parts.append(Part((x, y, z), (r, r * rng.uniform(0.5, 1.4), r), leaf, "ball"))
    return 0.5, 0.5, parts


def _lamp(rng: Rng, height: float) -> Furniture:
    top = rng.uniform(1.3, 1.7)
    metal, shade = Material(darker((1, 1, 1), rng.choice([0.02, 0.4]))), Material(linear(0.95, 0.88, 0.7))
    foot, pole = _box(-0.13, 0.13, 0, 0.03, -0.13, 0.13, metal), _box(-0.015, 0.015, 0, top - 0.2, -0.015, 0.015, metal)
    bulb = Part((0, top - 0.1, 0), (0.18, 0.16, 0.18), shade, "ball", glow=rng.choice([0.0, 1.2]))
    return 0.35, 0.35, [foot, pole, bulb]


def _kitchen(rng: Rng, height: float) -> Furniture:
    w, d, top = rng.uniform(1.2, 3.2), 0.62, 0.9
    face = replace(sample_wood(rng), pattern="plain")
    work = Material(tint(rng, light=(0.1, 0.9), vivid=(0, 0.3)), uneven=0.1)
    parts = [
        _box(-w / 2, w / 2, 0.08, top - 0.04, -d / 2, d / 2 - 0.04, face),
        _box(-w / 2, w / 2, top - 0.04, top, -d / 2, d / 2, work),
    ]
    gap = replace(face, colour=darker(face.colour, 0.35))
    joints = np.arange(-w / 2 + 0.6, w / 2 - 0.1, 0.6)
    parts += [_box(x - 0.006, x + 0.006, 0.08, top - 0.05, d / 2 - 0.04, d / 2 - 0.03, gap) for x in joints]
    if rng.random() < 0.65:
        high = min(height - 0.02, 2.15)
        parts.append(_box(-w / 2, w / 2, 1.42, high, -d / 2, -d / 2 + 0.35, face))
        parts += [_box(x - 0.006, x + 0.006, 1.43, high - 0.01, -d / 2 + 0.35, -d / 2 + 0.355, gap) for x in joints]
    if rng.random() < 0.5:  # a refrigerator at the end
        steel = Material(darker((1, 1, 1), rng.uniform(0.3, 0.85)))
        parts.append(_box(w / 2 - 0.6, w / 2, 0.02, 1.8, -d / 2, d / 2 + 0.02, steel))
    return w, d, parts


def _bath(rng: Rng, height: float) -> Furniture:
    w, d, h = rng.uniform(1.4, 1.8), rng.uniform(0.7, 0.8), rng.uniform(0.5, 0.62)
    white = Material(linear(0.95, 0.95, 0.94), uneven=0.01)
    tub = _box(-w / 2, w / 2, 0, h, -d / 2, d / 2, white)
    inner = (-w / 2 + 0.07, w / 2 - 0.07, h, h + 0.002, -d / 2 + 0.07, d / 2 - 0.07)
    return w, d, [tub, _box(*inner, Material(linear(0.7, 0.75, 0.77)))]


def _crate(rng: Rng, height: float) -> Furniture:
    w, h, d = rng.uniform(0.25, 0.7, 3)
    material = sample_cloth(rng) if rng.random() < 0.5 else sample_wood(rng)
    return w, d, [_box(-w / 2, w / 2, 0, h, -d / 2, d / 2, material)]


_PIECES = (_sofa, _bed, _table, _chair, _cabinet, _shelf, _plant, _lamp, _kitchen, _bath, _crate)


_MAKE: Mapping[str, Make] = {make.__name__.removeprefix("_"): make for make in _PIECES}


ROOMS = {  # pieces, how probable each is, and whether it stands against a wall
    "living": "sofa 0.9 wall, table 0.7, cabinet 0.6 wall, shelf 0.4 wall, plant 0.5 wall, sofa 0.4, lamp 0.4 wall, "
    "cabinet 0.3 wall, crate 0.2",
    "bed": "bed 0.95 wall, cabinet 0.8 wall, cabinet 0.6 wall, chair 0.3, lamp 0.3 wall, table 0.2 wall, "
    "crate 0.3 wall, shelf 0.2 wall",
    "dining": "table 0.95, chair 0.9, chair 0.9, chair 0.7, chair 0.6, cabinet 0.7 wall, plant 0.4 wall, "
    "cabinet 0.3 wall",
    "kitchen": "kitchen 1.0 wall, kitchen 0.6 wall, table 0.4, chair 0.4",
    "office": "table 0.9 wall, chair 0.9, shelf 0.7 wall, shelf 0.4 wall, cabinet 0.6 wall, table 0.3, "
    "plant 0.3 wall, crate 0.3 wall",
    "bath": "bath 0.8 wall, cabinet 0.6 wall, crate 0.3 wall, cabinet 0.2 wall",
    "empty": "crate 0.3 wall, crate 0.3, cabinet 0.15 wall",
}


WET = ("kitchen", "bath")


def furnish(
    rng: Rng,
    kind: str,  # kind of room, a key of ``ROOMS``
    room: Float64,  # width, height and depth of the room in metres, (3,)
    eye: Float64,  # place of the camera in metres, (3,)
) -> list[Piece]:
    """Draw the furniture of a room at random. No piece stands in the camera or in another piece."""
    pieces: list[Piece] = []
    taken = [(eye[0] - 0.35, eye[0] + 0.35, eye[2] - 0.35, eye[2] + 0.35)]
    for piece, chance, *wall in map(str.split, ROOMS[kind].split(", ")):
        if rng.random() > float(chance):
            continue
        w, d, parts = _MAKE[piece](rng, float(room[1]))
        for _ in range(6):
            x, z, angle = _place(rng, room, w, d, bool(wall))
            c, s = abs(math.cos(angle)), abs(math.sin(angle))
            wide, deep = (c * w + s * d) / 2, (s * w + c * d) / 2
            inside = wide <= x <= room[0] - wide and deep <= z <= room[2] - deep
            if inside and all(
                x + wide < left or x - wide > right or z + deep < back or z - deep > front
                for left, right, back, front in taken
            ):
                taken.append((x - wide, x + wide, z - deep, z + deep))
                pieces.append(Piece(tuple(parts), (x, 0.0, z), angle, (w / 2, d / 2)))
                break
    return pieces


def _place(rng: Rng, room: Float64, w: float, d: float, at_wall: bool) -> tuple[float, float, float]:
    """Where a piece of width w and depth d may stand, x, z and angle; not yet whether there is room."""
    if not at_wall:
        angle = rng.integers(4) * math.pi / 2 + (rng.normal(0, 0.5) if rng.random() < 0.4 else 0.0)
        return float(rng.uniform(0, room[0])), float(rng.uniform(0, room[2])), float(angle)
    side = int(rng.integers(4))  # faces z, x, -z, -x
    length = room[0] if side % 2 == 0 else room[2]
    margin = min(w / 2 + 0.01, length / 2)
    along = rng.uniform(margin, length - margin) if rng.random() < 0.7 else rng.choice([margin, length - margin])
    gap = d / 2 + 0.011
    x, z = ((along, gap), (gap, along), (along, room[2] - gap), (room[0] - gap, along))[side]
    return float(x), float(z), side * math.pi / 2


def _legs(w: float, d: float, top: float, thick: float, material: Material) -> list[Part]:
    return [
        _box(x, x + math.copysign(thick, -x), 0, top, z, z + math.copysign(thick, -z), material)
        for x, z in product((-w / 2, w / 2), (-d / 2, d / 2))
    ]
