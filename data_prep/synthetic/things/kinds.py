"""The kinds of things: how a pen draws each in its own frame, in what colours, and what can stand on it."""

import colorsys
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.things.drawing_pen import PALE, Pen, Rgb

# Lowest and highest hue (in turns), saturation and brightness of each colour.
COLOURS: Mapping[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "red": ((-0.02, 0.015), (0.8, 0.95), (0.7, 0.92)),
    "orange": ((0.062, 0.085), (0.85, 1.0), (0.92, 1.0)),
    "yellow": ((0.135, 0.16), (0.75, 0.95), (0.92, 1.0)),
    "green": ((0.28, 0.4), (0.6, 0.85), (0.45, 0.75)),
    "blue": ((0.58, 0.65), (0.7, 0.92), (0.55, 0.95)),
    "purple": ((0.75, 0.8), (0.55, 0.8), (0.45, 0.75)),
    "pink": ((0.9, 0.95), (0.35, 0.5), (0.95, 1.0)),
    "brown": ((0.055, 0.08), (0.6, 0.75), (0.35, 0.48)),
    "white": ((0.1, 0.6), (0.0, 0.04), (0.94, 1.0)),
    "black": ((0.0, 1.0), (0.0, 0.2), (0.1, 0.17)),
    "gray": ((0.0, 1.0), (0.0, 0.06), (0.45, 0.6)),
}


_WOOD, _LEAF, _GLASS, _DARK = (112, 76, 44), (64, 138, 52), (196, 224, 240), (34, 34, 40)


class Kind(NamedTuple):
    """A kind of thing."""

    draw: Callable[[Pen], None]
    height: float  # of its top above where it stands, in half widths
    colours: Mapping[str, float]  # names of colours and how often each occurs
    flat_top: bool = False  # whether other things can stand on it
    rides: bool = True  # whether it can stand on other things
    tilt: float = 3.0  # standard deviation of its tilt in degrees


def sample_rgb(rng: Rng, name: str) -> Rgb:
    """A shade of the colour called ``name``."""
    hue, saturation, brightness = (rng.uniform(*limits) for limits in COLOURS[name])
    red, green, blue = (int(255 * channel) for channel in colorsys.hsv_to_rgb(hue % 1, saturation, brightness))
    return red, green, blue


def _ball(pen: Pen) -> None:
    pen.globe(0, 1, 1, 1)
    turn = math.pi * pen.variant
    stripe = PALE if sum(pen.colour) < 640 else (200, 60, 50)
    # Two meridians seen from the side, each a band between two arcs from pole to pole.
    for outer, inner in ((0.5, 0.3), (-0.3, -0.5)):
        angles = np.linspace(0, math.pi, 14)
        band = [(outer * math.sin(t), math.cos(t)) for t in angles]
        band += [(inner * math.sin(t), math.cos(t)) for t in angles[::-1]]
        cos, sin = 0.97 * math.cos(turn), 0.97 * math.sin(turn)
        pen.shape([(x * cos - y * sin, 1 + x * sin + y * cos) for x, y in band], stripe, alpha=215)


def _box(pen: Pen) -> None:
    pen.shape([(-1, 0), (0.55, 0), (0.55, 1.2), (-1, 1.2)], tone=0.92)
    pen.shape([(0.55, 0), (1, 0.3), (1, 1.5), (0.55, 1.2)], tone=0.6)
    pen.shape([(-1, 1.2), (0.55, 1.2), (1, 1.5), (-0.55, 1.5)], tone=1.2)
    pen.shape([(-0.36, 0), (-0.1, 0), (-0.1, 1.2), (-0.36, 1.2)], tone=0.7)
    pen.shape([(-0.36, 1.2), (-0.1, 1.2), (0.36, 1.5), (0.1, 1.5)], tone=0.85)
    pen.line([(-1, 1.2), (0.55, 1.2), (0.55, 0)], 0.05, tone=0.55)


def _cup(pen: Pen) -> None:
    handle = [(0.66 + 0.36 * math.cos(t), 0.85 + 0.4 * math.sin(t)) for t in np.linspace(-1.8, 1.8, 12)]
    pen.line(handle, 0.17, tone=0.72)
    body = [(-0.55, 0.06), (-0.3, 0), (0.2, 0), (0.42, 0.06), (0.7, 1.5), (-0.85, 1.5)]
    pen.shape(body, tone=0.9)
    for step in range(4):  # a round wall
        left = -0.2 + 0.25 * pen.light + 0.1 * step
        pen.shape([(left, 0.02), (left + 0.16, 0.02), (left + 0.22, 1.5), (left - 0.04, 1.5)], PALE, alpha=26)
    pen.shape([(-0.55, 0.06), (-0.42, 0.03), (-0.62, 1.5), (-0.85, 1.5)], _DARK, alpha=50)
    pen.oval(-0.075, 1.5, 0.775, 0.2, tone=1.25)
    pen.oval(-0.075, 1.48, 0.64, 0.13, tone=0.4)


def _tree(pen: Pen) -> None:
    pen.shape([(-0.2, 0), (0.2, 0), (0.12, 1.2), (-0.12, 1.2)], _WOOD)
    pen.shape([(-0.2, 0), (-0.05, 0), (-0.03, 1.2), (-0.12, 1.2)], _WOOD, tone=0.7)
    if pen.variant < 0.4:  # a fir
        for low, wide, tone in ((0.55, 0.95, 0.72), (1.15, 0.76, 0.88), (1.75, 0.56, 1.05)):
            pen.shape([(-wide, low), (wide, low), (0, low + 1.05)], tone=tone)
            pen.shape([(0, low + 0.1), (0.9 * wide * pen.light, low), (0, low + 1.05)], tone=tone + 0.12)
        return
    crowns = ((-0.5, 1.35, 0.5), (0.5, 1.35, 0.5), (-0.25, 1.95, 0.52), (0.28, 1.9, 0.55), (0, 2.25, 0.5))
    for x, y, r in crowns:
        pen.oval(x, y, r, r, tone=0.7)
    for x, y, r in crowns:
        pen.oval(x + 0.1 * pen.light, y + 0.12, 0.72 * r, 0.7 * r, tone=0.95)
    for x, y, r in crowns[1:]:
        pen.oval(x + 0.18 * pen.light, y + 0.22, 0.32 * r, 0.28 * r, tone=1.2)


def _house(pen: Pen) -> None:
    roof: Rgb = (150, 62, 48) if sum(pen.colour) > 330 or pen.colour[2] > pen.colour[0] else (92, 92, 104)
    pen.shape([(0.42, 1.5), (0.66, 1.5), (0.66, 2.05), (0.42, 2.05)], roof, tone=0.7)
    pen.shape([(-0.82, 0), (0.82, 0), (0.82, 1.15), (-0.82, 1.15)])
    shadow = [(0, 0), (0.82, 0), (0.82, 1.15), (0, 1.15)]
    pen.shape([(-pen.light * x, y) for x, y in shadow], _DARK, alpha=34)
    pen.shape([(-1, 1.1), (1, 1.1), (0.5, 1.9), (-0.5, 1.9)], roof)
    pen.shape([(-1, 1.1), (1, 1.1), (0.93, 1.22), (-0.93, 1.22)], roof, tone=0.65)
    pen.shape([(-0.17, 0), (0.17, 0), (0.17, 0.68), (-0.17, 0.68)], _WOOD)
    for x in (-0.52, 0.52):
        pen.shape([(x - 0.19, 0.4), (x + 0.19, 0.4), (x + 0.19, 0.84), (x - 0.19, 0.84)], PALE)
        pen.shape([(x - 0.14, 0.45), (x + 0.14, 0.45), (x + 0.14, 0.79), (x - 0.14, 0.79)], (92, 128, 160))


def _star(pen: Pen) -> None:
    rim = [
        (r * math.sin(math.pi * corner / 5), 0.88 + r * math.cos(math.pi * corner / 5))
        for corner, r in ((corner, 1.05 if corner % 2 == 0 else 0.44) for corner in range(10))
    ]
    for corner in range(10):
        tone = (1.12 if (corner % 2 == 0) == (pen.light > 0) else 0.72) + 0.12 * math.cos(math.pi * corner / 5)
        pen.shape([(0, 0.88), rim[corner], rim[(corner + 1) % 10]], tone=tone)


def _car(pen: Pen) -> None:
    pen.shape([(-0.62, 0.62), (0.5, 0.62), (0.28, 1.12), (-0.42, 1.12)], tone=0.85)
    pen.shape([(-0.52, 0.64), (-0.1, 0.64), (-0.1, 1.03), (-0.38, 1.03)], _GLASS)
    pen.shape([(0, 0.64), (0.38, 0.64), (0.22, 1.03), (0, 1.03)], _GLASS, tone=0.9)
    pen.shape(
        [(-1, 0.2), (1, 0.2), (1, 0.5), (0.86, 0.6), (0.5, 0.66), (-0.62, 0.66), (-0.92, 0.6), (-1, 0.45)], tone=1.02
    )
    pen.shape([(-1, 0.2), (1, 0.2), (1, 0.33), (-1, 0.33)], tone=0.62)
    pen.oval(0.93, 0.46, 0.08, 0.08, (255, 240, 170))
    for x in (-0.55, 0.55):
        pen.oval(x, 0.2, 0.24, 0.24, _DARK)
        pen.oval(x, 0.2, 0.11, 0.11, (176, 178, 184))


def _fish(pen: Pen) -> None:
    pen.shape([(-0.45, 0.55), (-1, 1.05), (-0.86, 0.55), (-1, 0.05)], tone=0.75)
    pen.shape([(-0.2, 0.95), (0.25, 0.98), (-0.15, 1.32)], tone=0.7)
    pen.oval(0.2, 0.55, 0.8, 0.5, tone=0.82)
    pen.oval(0.22, 0.62, 0.72, 0.38, tone=1.02)
    pen.oval(0.25, 0.74, 0.5, 0.16, tone=1.25)
    pen.shape([(0.05, 0.5), (-0.3, 0.2), (-0.25, 0.6)], tone=0.68)
    pen.oval(0.62, 0.66, 0.15, 0.15, PALE)
    pen.oval(0.66, 0.66, 0.08, 0.08, _DARK)


def _boat(pen: Pen) -> None:
    pen.line([(0, 0.5), (0, 2.1)], 0.08, _WOOD)
    pen.shape([(0.07, 0.68), (0.78, 0.68), (0.07, 2.05)], PALE)
    pen.shape([(0.07, 0.68), (0.78, 0.68), (0.62, 1.0), (0.07, 1.0)], tone=1.1)
    pen.shape([(-0.07, 0.68), (-0.6, 0.68), (-0.07, 1.75)], PALE, tone=0.88)
    pen.shape([(-1, 0.58), (1, 0.58), (0.62, 0), (-0.62, 0)])
    pen.shape([(-0.86, 0.36), (0.86, 0.36), (0.62, 0), (-0.62, 0)], tone=0.7)
    pen.shape([(-1, 0.58), (1, 0.58), (0.97, 0.5), (-0.97, 0.5)], tone=1.3)


def _flower(pen: Pen) -> None:
    pen.line([(0, 0), (0.06, 0.6), (0, 1.35)], 0.12, _LEAF)
    pen.shape([(0.03, 0.3), (0.45, 0.42), (0.62, 0.72), (0.25, 0.62)], _LEAF, tone=1.1)
    pen.shape([(0.03, 0.2), (-0.4, 0.3), (-0.6, 0.58), (-0.22, 0.5)], _LEAF, tone=0.85)
    for petal in range(6):
        angle = math.pi * petal / 3 + 0.3
        x, y = 0.55 * math.cos(angle), 1.45 + 0.55 * math.sin(angle)
        pen.oval(x, y, 0.36, 0.36, tone=0.78)
        pen.oval(x + 0.05 * pen.light, y + 0.06, 0.27, 0.27, tone=1.08)
    middle: Rgb = (244, 200, 40) if pen.colour[2] > 60 or pen.colour[1] < 120 else (120, 72, 36)
    pen.globe(0, 1.45, 0.3, 0.3, middle)


def _mushroom(pen: Pen) -> None:
    pen.shape([(-0.3, 0), (0.3, 0), (0.22, 0.85), (-0.22, 0.85)], PALE)
    pen.shape([(-0.3 * pen.light, 0), (0, 0), (0, 0.85), (-0.22 * pen.light, 0.85)], _DARK, alpha=40)
    cap = [(math.cos(t), 0.75 + 0.85 * math.sin(t)) for t in np.linspace(0, math.pi, 18)]
    pen.shape([*cap, (-0.6, 0.62), (0.6, 0.62)], tone=0.72)
    pen.shape([(0.86 * x + 0.06 * pen.light, 0.12 + 0.88 * y) for x, y in cap], tone=1.0)
    spots = PALE if sum(pen.colour) < 640 else (214, 60, 50)
    for x, y, r in ((-0.5, 1.05, 0.13), (0.05, 1.32, 0.16), (0.5, 1.02, 0.14), (-0.05, 0.95, 0.1)):
        pen.oval(x, y, r, 0.8 * r, spots)


def _bird(pen: Pen) -> None:
    for x in (-0.1, 0.12):
        pen.line([(x, 0.35), (x, 0)], 0.06, (214, 140, 40))
    pen.shape([(-0.45, 0.75), (-1, 0.98), (-0.95, 0.62), (-0.5, 0.5)], tone=0.65)
    pen.oval(0, 0.68, 0.66, 0.4, tone=0.85)
    pen.oval(0.05, 0.76, 0.55, 0.28, tone=1.05)
    pen.shape([(0.88, 1.2), (0.84, 1.0), (1.12, 1.06)], (240, 160, 40))
    pen.oval(0.6, 1.1, 0.32, 0.31)
    pen.oval(0.62, 1.16, 0.22, 0.2, tone=1.15)
    pen.shape([(0.2, 0.9), (-0.35, 0.88), (-0.72, 0.6), (-0.1, 0.52)], tone=0.6)
    pen.oval(0.7, 1.18, 0.09, 0.09, PALE)
    pen.oval(0.72, 1.18, 0.05, 0.05, _DARK)


def _apple(pen: Pen) -> None:
    pen.oval(-0.38, 0.86, 0.6, 0.84, tone=0.72)
    pen.oval(0.38, 0.86, 0.6, 0.84, tone=0.72)
    pen.oval(0.1 * pen.light, 0.92, 0.78, 0.66, tone=0.92)
    pen.oval(0.25 * pen.light, 1.05, 0.5, 0.42, tone=1.08)
    pen.oval(0.42 * pen.light, 1.28, 0.15, 0.12, PALE, alpha=180)
    pen.oval(0, 1.58, 0.26, 0.1, tone=0.5)
    pen.line([(0, 1.5), (0.1, 2.0)], 0.12, _WOOD)
    pen.shape([(0.1, 1.75), (0.4, 2.02), (0.78, 1.95), (0.48, 1.7)], _LEAF)


def _clock(pen: Pen) -> None:
    for x in (-0.55, 0.55):
        pen.line([(x, 0.3), (1.25 * x, 0.04)], 0.16, tone=0.6)
    pen.oval(0, 1, 0.97, 0.97, tone=0.75)
    pen.oval(0.03 * pen.light, 1.03, 0.9, 0.9, tone=1.05)
    pen.oval(0, 1, 0.7, 0.7, PALE)
    for tick in range(12):
        angle = math.pi * tick / 6
        pen.oval(0.58 * math.cos(angle), 1 + 0.58 * math.sin(angle), 0.05, 0.05, _DARK)
    hour = 2 * math.pi * pen.variant
    for angle, long in ((hour, 0.34), (12 * hour, 0.52)):
        pen.line([(0, 1), (long * math.sin(angle), 1 + long * math.cos(angle))], 0.1, _DARK)


_ANY: Mapping[str, float] = dict.fromkeys(COLOURS, 0.25)  # any thing may have any colour, but some are usual


KINDS: Mapping[str, Kind] = {
    "apple": Kind(_apple, 1.95, {"red": 5, "green": 4, "yellow": 2}, tilt=8),
    "ball": Kind(_ball, 2.0, {**_ANY, "red": 4, "blue": 3, "yellow": 3, "orange": 3, "white": 2}, tilt=0),
    "bird": Kind(_bird, 1.4, {**_ANY, "brown": 3, "blue": 3, "red": 2, "black": 2, "yellow": 2}, tilt=4),
    "boat": Kind(_boat, 2.1, {**_ANY, "red": 3, "blue": 3, "white": 2, "brown": 2}, rides=False, tilt=6),
    "box": Kind(_box, 1.45, {**_ANY, "brown": 7, "green": 2, "purple": 2}, flat_top=True),
    "car": Kind(_car, 1.1, {**_ANY, "red": 4, "blue": 3, "black": 2, "gray": 2, "yellow": 2}, flat_top=True),
    "clock": Kind(_clock, 1.95, {**_ANY, "black": 3, "red": 3, "gray": 3, "brown": 2}, tilt=3),
    "cup": Kind(_cup, 1.6, {**_ANY, "white": 4, "blue": 3, "red": 2, "pink": 2, "purple": 2}, tilt=3),
    "fish": Kind(_fish, 1.15, {**_ANY, "orange": 6, "blue": 3, "gray": 3}, rides=False, tilt=12),
    "flower": Kind(_flower, 2.3, {**_ANY, "pink": 5, "purple": 4, "red": 3, "yellow": 3, "white": 2}),
    "house": Kind(_house, 1.9, {**_ANY, "white": 3, "yellow": 3, "red": 2, "gray": 2}, True, rides=False, tilt=1),
    "mushroom": Kind(_mushroom, 1.6, {**_ANY, "red": 5, "brown": 5, "white": 2}),
    "star": Kind(_star, 1.93, {**_ANY, "yellow": 7, "blue": 1, "white": 1, "red": 1}, tilt=15),
    "tree": Kind(_tree, 2.7, {"green": 9, "orange": 2, "yellow": 2, "red": 1, "pink": 1}, rides=False, tilt=2),
}


@dataclass(frozen=True)
class Thing:
    """One thing of a scene; lengths in sides of the picture, x to the right, y down."""

    kind: str  # a key of ``KINDS``
    colour: str  # a key of ``COLOURS``
    size: str  # "small", "large", or "" between them
    x: float  # of its middle
    y: float  # of its lower edge
    half_width: float
    on: int = -1  # number of the thing it stands on, -1 for none

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom."""
        height = self.half_width * KINDS[self.kind].height
        return self.x - self.half_width, self.y - height, self.x + self.half_width, self.y
