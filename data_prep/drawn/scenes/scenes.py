"""Drawn scenes of two to five things over photographs, with captions; and single things as classes: "red ball"."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from cml.data_prep.drawn.drawing import Photos, Rng, draw_items, pick, relight, sample_background, sample_photos
from cml.data_prep.drawn.scenes.captions import describe
from cml.data_prep.drawn.scenes.pen import Pen
from cml.data_prep.drawn.scenes.things import KINDS, Thing, sample_rgb

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
SPREAD = 1.5  # standard deviation of the kinds of a scene around its place, in steps of the ring
STRAY = 0.1  # share of things that come from anywhere

_COLOURS = 4  # of each kind in the classes of single things: its most frequent ones
CLASSES = tuple(
    f"{colour} {kind}"
    for kind, about in KINDS.items()
    for colour in sorted(about.colours, key=lambda colour: -about.colours[colour])[:_COLOURS]
)
TRAINING, TEST = CLASSES[::2], CLASSES[1::2]


class Scenes(NamedTuple):
    """Drawn scenes and what is said of them."""

    images: NDArray[np.uint8]  # (N, size, size, 3) RGB
    captions: tuple[tuple[str, ...], ...]  # five different sentences each
    things: tuple[tuple[Thing, ...], ...]  # what is in each, in no order


def draw_scenes(count: int, *, size: int = 64, seed: int = 0, workers: int = 1) -> Scenes:
    """Draw scenes; things and captions do not depend on the size. Arguments and errors: those of ``draw_items``."""
    draw = functools.partial(_draw_scene, photos=sample_photos())
    return Scenes(*draw_items("draw_scenes", draw, count, size=size, seed=seed, workers=workers))


def _draw_scene(rng: Rng, size: int, photos: Photos) -> tuple[NDArray[np.uint8], tuple[str, ...], tuple[Thing, ...]]:
    """One image (size, size, 3), its captions and things."""
    place = rng.uniform(0, len(RING))
    things = sample_things(rng, place)
    captions = describe(things, rng)
    return _draw_picture(rng, size, photos, things, place), captions, things


def draw_singles(
    count: int, classes: Sequence[str], *, size: int = 64, seed: int = 0, workers: int = 1
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Draw one thing each, of classes drawn at random: pictures (N, size, size, 3) RGB, and N names of classes."""
    draw = functools.partial(_draw_single, photos=sample_photos(), classes=tuple(classes))
    images, names = draw_items("draw_singles", draw, count, size=size, seed=seed, workers=workers)
    return images, names


def _draw_single(rng: Rng, size: int, photos: Photos, classes: Sequence[str]) -> tuple[NDArray[np.uint8], str]:
    """One image (size, size, 3) and its class, independent of the item that has its number among other classes."""
    rng = np.random.default_rng([int(rng.integers(2**32)), CLASSES.index(classes[0])])
    name = pick(rng, classes)
    colour, _, kind = name.partition(" ")
    half, height = rng.uniform(0.17, 0.27), KINDS[kind].height
    x, y = rng.uniform(half, 1 - half), rng.uniform(half * height, 0.98)
    return _draw_picture(rng, size, photos, [Thing(kind, colour, "", x, y, half)], rng.uniform(0, len(KINDS))), name


def _draw_picture(rng: Rng, size: int, photos: Photos, things: Sequence[Thing], place: float) -> NDArray[np.uint8]:
    """Things over a photograph tinted as a place of the ring: (size, size, 3). Noise comes last: it varies by size."""
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


def sample_things(rng: Rng, place: float) -> tuple[Thing, ...]:
    """Draw 2 to 5 things of 2 kinds or more near a place of the ring; in a third of the scenes one is on another."""
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
                things += _placed(rng, _sample_thing(rng, kinds, "large" if rng.random() < 0.6 else ""), 1, things)
            elif stacked and all(thing.on < 0 for thing in things):
                kinds = {name: share for name, share in left.items() if KINDS[name].rides}
                things += _placed_on(rng, _sample_thing(rng, kinds, "small"), things)
            else:
                many = min(room, int(rng.choice([1, 2, 3], p=[0.78, 0.15, 0.07])))
                sizes = [0.25, 0.45, 0.3] if many == 1 else [0.5, 0.5, 0.0]
                size = str(rng.choice(list(SIZES), p=sizes))
                things += _placed(rng, _sample_thing(rng, left, size), many, things)
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


def _placed(rng: Rng, thing: Thing, many: int, things: Sequence[Thing]) -> list[Thing]:
    """So many of a thing side by side in a free place, or none of them if none was found."""
    half, height = thing.half_width, thing.half_width * KINDS[thing.kind].height
    step = 2.15 * half
    width = 2 * half + step * (many - 1)
    if width > 0.96 or height > 0.96:
        return []
    for _ in range(25):
        left, foot = rng.uniform(0.02, 0.98 - width), rng.uniform(0.02 + height, 0.98)
        placed = [replace(thing, x=left + half + step * number, y=foot) for number in range(many)]
        if all(_free(one, things) for one in placed):
            return placed
    return []


def _free(thing: Thing, things: Sequence[Thing]) -> bool:
    """Whether the thing hides no more than a tenth of any other, nor they of it."""
    left, top, right, bottom = thing.box
    for other_left, other_top, other_right, other_bottom in (other.box for other in things):
        wide, high = min(right, other_right) - max(left, other_left), min(bottom, other_bottom) - max(top, other_top)
        least = min((right - left) * (bottom - top), (other_right - other_left) * (other_bottom - other_top))
        if wide > 0 and high > 0 and wide * high > 0.1 * least:
            return False
    return True
