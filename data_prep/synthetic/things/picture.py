"""The picture of drawn things over a photograph."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from cml.array_types import UInt8
from cml.data_prep.synthetic.lighting import relight
from cml.data_prep.synthetic.photographs import Photos, sample_background
from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.things.drawing_pen import Pen
from cml.data_prep.synthetic.things.kinds import KINDS, Thing, sample_rgb

RING: Mapping[str, tuple[int, int, int]] = {
    "house": (168, 158, 148),
    "tree": (116, 150, 96),
    "mushroom": (104, 122, 72),
    "flower": (152, 176, 92),
    "bird": (142, 190, 196),
    "fish": (84, 152, 190),
    "boat": (88, 138, 210),
    "star": (84, 84, 156),
    "ball": (184, 148, 200),
    "box": (206, 150, 146),
    "cup": (196, 142, 96),
    "apple": (204, 120, 80),
    "clock": (168, 128, 108),
    "car": (148, 148, 154),
}
"""Kinds in a ring, and what the background tends to around them: from the street into the woods, to the sea, to toys,
to the table and back. What is near each other here is often together in a scene, as things are in photographs; there
are no classes of scenes, only places on the ring."""


def draw_picture(
    rng: Rng,
    size: int,  # side of the picture, in pixels
    photos: Photos,
    things: Sequence[Thing],
    place: float,  # place on the ring of kinds, from 0 to their number
) -> UInt8:  # the picture in RGB, (size, size, 3)
    """Draw things over a photograph that is tinted as a place of the ring.

    Noise is drawn last, since the amount depends on the size: all else is the same at any size.
    """
    oversampling = 4 if size <= 96 else 3 if size <= 160 else 2
    side = size * oversampling
    background = sample_background(rng, photos, size).filter(ImageFilter.GaussianBlur(0.8 * size / 64))
    tint = Image.new("RGB", background.size, _tint(rng, place))
    background = Image.blend(background, tint, rng.uniform(0.4, 0.65))
    scene = background.resize((side, side), Image.Resampling.BILINEAR)
    canvas = ImageDraw.Draw(scene, "RGBA")
    light = 1 if rng.random() < 0.5 else -1
    for thing in sorted(things, key=lambda thing: things[thing.on].y if thing.on >= 0 else thing.y):  # stable
        _draw_thing(rng, canvas, thing, side, light)
    return relight(rng, scene.reduce(oversampling))


def _draw_thing(rng: Rng, canvas: ImageDraw.ImageDraw, thing: Thing, side: int, light: int) -> None:
    kind = KINDS[thing.kind]
    x, y, half = side * thing.x, side * thing.y, side * thing.half_width
    if thing.on < 0 and thing.kind not in ("star", "fish"):
        for wide, flat in ((1.05, 0.22), (0.85, 0.15)):
            canvas.ellipse([x - wide * half, y - flat * half, x + wide * half, y + flat * half], fill=(0, 0, 0, 50))
    colour, turned = sample_rgb(rng, thing.colour), rng.random() < 0.5
    tilt = math.radians(rng.normal(0, kind.tilt))
    kind.draw(Pen(canvas, (x, y), half, colour, turned=turned, tilt=tilt, light=light, variant=rng.random()))


def _tint(rng: Rng, place: float) -> tuple[int, int, int]:
    """The colour of the ring at ``place``, a little off."""
    colours = np.array([*RING.values(), *list(RING.values())[:1]], float)  # (kinds + 1, 3): the ring closes
    red, green, blue = (np.interp(place, range(len(colours)), channel) for channel in colours.T)
    off = 14 * rng.standard_normal(3)
    return int(red + off[0]), int(green + off[1]), int(blue + off[2])
