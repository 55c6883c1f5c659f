"""Drawn scenes of two to five things over photographs, with captions."""

import functools
from typing import NamedTuple

from cml.array_types import UInt8
from cml.data_prep.synthetic.draw_items import draw_items
from cml.data_prep.synthetic.photographs import Photos, sample_photos
from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.scenes.arrangement import sample_things
from cml.data_prep.synthetic.scenes.captions import describe
from cml.data_prep.synthetic.things.kinds import Thing
from cml.data_prep.synthetic.things.picture import RING, draw_picture


class Scenes(NamedTuple):
    """Drawn scenes and what is said of them."""

    images: UInt8  # (N, size, size, 3) RGB
    captions: tuple[tuple[str, ...], ...]  # five different sentences each
    things: tuple[tuple[Thing, ...], ...]  # what is in each, in no order


def draw_scenes(
    count: int,
    *,
    size: int = 64,  # side of the pictures, in pixels
    seed: int = 0,
    workers: int = 1,
) -> Scenes:
    """Draw scenes of two to five things with captions. Things and captions do not depend on the size."""
    draw = functools.partial(_draw_scene, photos=sample_photos())
    return Scenes(*draw_items("draw_scenes", draw, count, size=size, seed=seed, workers=workers))


def _draw_scene(rng: Rng, size: int, photos: Photos) -> tuple[UInt8, tuple[str, ...], tuple[Thing, ...]]:
    """One image (size, size, 3), its captions and things."""
    place = rng.uniform(0, len(RING))
    things = sample_things(rng, place)
    captions = describe(things, rng)
    return draw_picture(rng, size, photos, things, place), captions, things
