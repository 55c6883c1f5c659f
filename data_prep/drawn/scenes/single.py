"""Single things over photographs, as classes: "red ball", "white cup". Half of the classes are for testing alone.

What they look like is that of the things of scenes (``things.py``). Not for: several things at once (``scenes.py``).
"""

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.data_prep.drawn.chunks import draw_items
from cml.data_prep.drawn.photographs import sample_photos
from cml.data_prep.drawn.scenes.scenes import draw_picture
from cml.data_prep.drawn.scenes.things import KINDS, Thing

_COLOURS = 4  # of each kind: its most frequent ones
CLASSES = tuple(
    f"{colour} {kind}"
    for kind, about in KINDS.items()
    for colour in sorted(about.colours, key=lambda colour: -about.colours[colour])[:_COLOURS]
)
TRAINING, TEST = CLASSES[::2], CLASSES[1::2]


def draw_singles(
    count: int, classes: Sequence[str], *, size: int = 64, seed: int = 0, workers: int = 1
) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Draw pictures of one thing each, of classes drawn at random: (N, size, size, 3) RGB, and N names of classes.

    Item i depends on ``seed``, ``size``, the classes and i alone. Other arguments and errors are those of
    ``draw_items``.
    """
    draw = functools.partial(_draw_single, photos=sample_photos(), classes=tuple(classes))
    images, names = draw_items("draw_singles", draw, count, size=size, seed=seed, workers=workers)
    return np.stack(images), names


def _draw_single(
    rng: np.random.Generator, size: int, photos: tuple[Image.Image, ...], classes: Sequence[str]
) -> tuple[NDArray[np.uint8], str]:
    """One image (size, size, 3) and its class, independent of the item that has its number among other classes."""
    rng = np.random.default_rng([int(rng.integers(2**32)), CLASSES.index(classes[0])])
    name = classes[int(rng.integers(len(classes)))]
    colour, _, kind = name.partition(" ")
    half, height = rng.uniform(0.17, 0.27), KINDS[kind].height
    x, y = rng.uniform(half, 1 - half), rng.uniform(half * height, 0.98)
    return draw_picture(rng, size, photos, [Thing(kind, colour, "", x, y, half)], rng.uniform(0, len(KINDS))), name
