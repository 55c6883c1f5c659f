"""The embedded dataset of captioned images: things drawn over photographs, and what one may say of them. No download.

Two to five things (``things.py``) of some colour and size stand, hang or lie over a crop of one of
scikit-learn's two sample photographs; ``captions.py`` says five sentences about each picture. It is for
demonstrations, tests and comparisons of losses on a small machine. Not for: training anything meant for photographs.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from cml.data_prep.drawn.chunks import draw_items
from cml.data_prep.drawn.photographs import relight, sample_background, sample_photos
from cml.data_prep.drawn.scenes.captions import describe
from cml.data_prep.drawn.scenes.pen import Pen
from cml.data_prep.drawn.scenes.things import KINDS, Thing, sample_rgb

__all__ = ["Scenes", "Thing", "draw_scenes"]

Rng = np.random.Generator

SIZES: Mapping[str, tuple[float, float]] = {"small": (0.115, 0.135), "": (0.16, 0.185), "large": (0.225, 0.265)}
"""Lowest and highest half width of a thing, in sides of the picture, by the word for it."""


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
SPREAD = 1.5
"""Standard deviation of the kinds of a scene around its place, in steps of the ring."""
STRAY = 0.1
"""Share of things that come from anywhere."""


@dataclass(frozen=True)
class Scenes:
    """Drawn scenes and what is said of them."""

    images: NDArray[np.uint8]  # (N, size, size, 3) RGB
    captions: tuple[tuple[str, ...], ...]  # five different sentences each
    things: tuple[tuple[Thing, ...], ...]  # what is in each, in no order


def draw_scenes(count: int, *, size: int = 64, seed: int = 0, workers: int = 1) -> Scenes:
    """Draw scenes.

    Item i depends on ``seed``, ``size`` and i alone, its things and captions on ``seed`` and i, so a longer run begins
    with the items of a shorter one.

    Arguments and errors are those of ``draw_items``.
    """
    draw = functools.partial(_draw_scene, photos=sample_photos())
    images, captions, things = draw_items("draw_scenes", draw, count, size=size, seed=seed, workers=workers)
    return Scenes(np.stack(images), captions, things)


def _draw_scene(
    rng: Rng, size: int, photos: tuple[Image.Image, ...]
) -> tuple[NDArray[np.uint8], tuple[str, ...], tuple[Thing, ...]]:
    """One image (size, size, 3), its captions and things."""
    place = rng.uniform(0, len(RING))
    things = sample_things(rng, place)
    captions = describe(things, rng)
    return draw_picture(rng, size, photos, things, place), captions, things


def draw_picture(
    rng: Rng, size: int, photos: tuple[Image.Image, ...], things: Sequence[Thing], place: float
) -> NDArray[np.uint8]:
    """Draw things over a photograph tinted as a place of the ring: (size, size, 3).

    Noise comes last: what is before it suits any size.
    """
    oversampling = 4 if size <= 96 else 3 if size <= 160 else 2
    side = size * oversampling
    background = sample_background(rng, photos[int(rng.integers(len(photos)))], size)
    background = background.filter(ImageFilter.GaussianBlur(0.8 * size / 64))
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
    pen = Pen(
        canvas,
        (x, y),
        half,
        sample_rgb(rng, thing.colour),
        turned=rng.random() < 0.5,
        tilt=math.radians(rng.normal(0, kind.tilt)),
        light=light,
        variant=rng.random(),
    )
    kind.draw(pen)


def _tint(rng: Rng, place: float) -> tuple[int, int, int]:
    """The colour of the ring at ``place``, a little off."""
    colours = np.array([*RING.values(), *list(RING.values())[:1]], float)  # (kinds + 1, 3): the ring closes
    red, green, blue = (np.interp(place, range(len(colours)), channel) for channel in colours.T)
    off = 14 * rng.standard_normal(3)
    return int(red + off[0]), int(green + off[1]), int(blue + off[2])


def sample_things(rng: Rng, place: float) -> tuple[Thing, ...]:
    """Draw 2 to 5 things of 2 kinds or more: single ones, pairs and threes; in a third of the scenes one on another.

    ``place`` is on the ring, 0 to the number of kinds.
    """
    apart = np.abs(np.arange(len(RING)) - place)
    usual = np.exp(-0.5 * (np.minimum(apart, len(RING) - apart) / SPREAD) ** 2)
    shares = dict(zip(RING, (1 - STRAY) * usual / usual.sum() + STRAY / len(RING), strict=True))
    wanted = int(rng.choice([2, 3, 4, 5], p=[0.4, 0.35, 0.17, 0.08]))
    stacked = rng.random() < 0.35
    while True:
        things: list[Thing] = []
        for attempt in range(30):
            room = wanted - len(things)
            if room == 0:
                break
            left = {name: share for name, share in shares.items() if all(thing.kind != name for thing in things)}
            if stacked and attempt == 0:
                kinds = {name: share for name, share in left.items() if KINDS[name].flat_top}
                things += _placed(rng, [_sample_thing(rng, kinds, "large" if rng.random() < 0.6 else "")], things)
            elif stacked and all(thing.on < 0 for thing in things):
                kinds = {name: share for name, share in left.items() if KINDS[name].rides}
                things += _placed_on(rng, _sample_thing(rng, kinds, "small"), things)
            else:
                many = min(room, int(rng.choice([1, 2, 3], p=[0.78, 0.15, 0.07])))
                sizes = [0.25, 0.45, 0.3] if many == 1 else [0.5, 0.5, 0.0]
                one = _sample_thing(rng, left, str(rng.choice(list(SIZES), p=sizes)))
                things += _placed(rng, [one] * many, things)
        if len({thing.kind for thing in things}) >= 2:
            return tuple(things)


def _sample_thing(rng: Rng, kinds: Mapping[str, float], size: str) -> Thing:
    """A thing of one of some kinds, by their shares; it has no place yet."""
    kind = _drawn(rng, kinds)
    return Thing(kind, _drawn(rng, KINDS[kind].colours), size, 0.5, 0.5, rng.uniform(*SIZES[size]))


def _drawn(rng: Rng, shares: Mapping[str, float]) -> str:
    weights = np.array(list(shares.values()), float)
    return str(rng.choice(list(shares), p=weights / weights.sum()))


def _placed_on(rng: Rng, thing: Thing, things: Sequence[Thing]) -> list[Thing]:
    """The thing on top of another one; nothing if no other has room for it."""
    for number, below in enumerate(things):
        if KINDS[below.kind].flat_top and thing.half_width <= 0.9 * below.half_width:
            slack = 0.3 * below.half_width
            x, y = below.x + rng.uniform(-slack, slack), below.box[1] + 0.004
            on_top = replace(thing, x=x, y=y, on=number)
            if on_top.box[1] > 0.01 and _free(on_top, [other for other in things if other is not below]):
                return [on_top]
    return []


def _placed(rng: Rng, group: Sequence[Thing], things: Sequence[Thing]) -> list[Thing]:
    """The things of a group side by side in a free place, or none of them if none was found."""
    half, height = group[0].half_width, group[0].half_width * KINDS[group[0].kind].height
    step = 2.15 * half
    width = 2 * half + step * (len(group) - 1)
    if width > 0.96 or height > 0.96:
        return []
    for _ in range(25):
        left = rng.uniform(0.02, 0.98 - width)
        foot = rng.uniform(0.02 + height, 0.98)
        placed = [replace(one, x=left + half + step * number, y=foot) for number, one in enumerate(group)]
        if all(_free(one, things) for one in placed):
            return placed
    return []


def _free(thing: Thing, things: Sequence[Thing]) -> bool:
    """Whether the thing hides no more than a tenth of any other, nor they of it."""
    left, top, right, bottom = thing.box
    for other in things:
        wide = min(right, other.box[2]) - max(left, other.box[0])
        high = min(bottom, other.box[3]) - max(top, other.box[1])
        if wide > 0 and high > 0:
            least = min((right - left) * (bottom - top), (other.box[2] - other.box[0]) * (other.box[3] - other.box[1]))
            if wide * high > 0.1 * least:
                return False
    return True
