"""Single drawn things as classes: "red ball", "white cup". Half of the classes are for testing alone."""

import functools
from collections.abc import Sequence

import numpy as np

from cml.array_types import UInt8
from cml.data_prep.synthetic.draw_items import draw_items
from cml.data_prep.synthetic.photographs import Photos, sample_photos
from cml.data_prep.synthetic.random_choice import Rng, pick
from cml.data_prep.synthetic.things.kinds import KINDS, Thing
from cml.data_prep.synthetic.things.picture import draw_picture

_COLOURS = 4  # of each kind in the classes of single things: its most frequent ones


CLASSES = tuple(
    f"{colour} {kind}"
    for kind, about in KINDS.items()
    for colour in sorted(about.colours, key=lambda colour: -about.colours[colour])[:_COLOURS]
)


TRAINING, TEST = CLASSES[::2], CLASSES[1::2]


def draw_singles(
    count: int,
    classes: Sequence[str],  # classes to draw from, such as "red ball", each as likely: ``TRAINING`` or ``TEST``
    *,
    size: int = 64,  # side of the pictures, in pixels
    seed: int = 0,
    workers: int = 1,
) -> tuple[UInt8, tuple[str, ...]]:  # pictures in RGB, (N, size, size, 3), and the N classes
    """Draw one thing in each picture."""
    draw = functools.partial(_draw_single, photos=sample_photos(), classes=tuple(classes))
    images, names = draw_items("draw_singles", draw, count, size=size, seed=seed, workers=workers)
    return images, names


def _draw_single(rng: Rng, size: int, photos: Photos, classes: Sequence[str]) -> tuple[UInt8, str]:
    """One image (size, size, 3) and its class, independent of the item that has its number among other classes."""
    rng = np.random.default_rng([int(rng.integers(2**32)), CLASSES.index(classes[0])])
    name = pick(rng, classes)
    colour, _, kind = name.partition(" ")
    half, height = rng.uniform(0.17, 0.27), KINDS[kind].height
    x, y = rng.uniform(half, 1 - half), rng.uniform(half * height, 0.98)
    return draw_picture(rng, size, photos, [Thing(kind, colour, "", x, y, half)], rng.uniform(0, len(KINDS))), name
