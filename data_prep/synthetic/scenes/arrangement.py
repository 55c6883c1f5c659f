"""Which things a scene has, and where they are: kinds that occur together, side by side or on top of each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cml.data_prep.synthetic.random_choice import Rng
from cml.data_prep.synthetic.things.kinds import KINDS, Thing
from cml.data_prep.synthetic.things.picture import RING

SIZES: Mapping[str, tuple[float, float]] = {"small": (0.115, 0.135), "": (0.16, 0.185), "large": (0.225, 0.265)}
"""Lowest and highest half width of a thing, in sides of the picture, by the word for it."""


SPREAD = 1.5  # standard deviation of the kinds of a scene around its place, in steps of the ring


STRAY = 0.1  # share of things that come from anywhere


def sample_things(rng: Rng, place: float) -> tuple[Thing, ...]:
    """Draw two to five things at random, of at least two kinds. In a third of the scenes, one is on top of another."""
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
                things += _place_things(
                    rng, _sample_thing(rng, kinds, "large" if rng.random() < 0.6 else ""), 1, things
                )
            elif stacked and all(thing.on < 0 for thing in things):
                kinds = {name: share for name, share in left.items() if KINDS[name].rides}
                things += _place_on_top(rng, _sample_thing(rng, kinds, "small"), things)
            else:
                many = min(room, int(rng.choice([1, 2, 3], p=[0.78, 0.15, 0.07])))
                sizes = [0.25, 0.45, 0.3] if many == 1 else [0.5, 0.5, 0.0]
                size = str(rng.choice(list(SIZES), p=sizes))
                things += _place_things(rng, _sample_thing(rng, left, size), many, things)
        if len({thing.kind for thing in things}) >= 2:
            return tuple(things)


def _sample_thing(rng: Rng, kinds: Mapping[str, float], size: str) -> Thing:
    """A thing of one of some kinds, by their shares; it has no place yet."""
    kind = _draw_key(rng, kinds)
    return Thing(kind, _draw_key(rng, KINDS[kind].colours), size, 0.5, 0.5, rng.uniform(*SIZES[size]))


def _draw_key(rng: Rng, shares: Mapping[str, float]) -> str:
    weights = np.array(list(shares.values()), float)
    return str(rng.choice(list(shares), p=weights / weights.sum()))


def _place_on_top(rng: Rng, thing: Thing, things: Sequence[Thing]) -> list[Thing]:
    """The thing on top of another one; nothing if no other has room for it."""
    for number, below in enumerate(things):
        if KINDS[below.kind].flat_top and thing.half_width <= 0.9 * below.half_width:
            slack = 0.3 * below.half_width
            x, y = below.x + rng.uniform(-slack, slack), below.box[1] + 0.004
            on_top = replace(thing, x=x, y=y, on=number)
            if on_top.box[1] > 0.01 and _free(on_top, [other for other in things if other is not below]):
                return [on_top]
    return []


def _place_things(rng: Rng, thing: Thing, many: int, things: Sequence[Thing]) -> list[Thing]:
    """So many of a thing side by side in a free place, or none of them if none was found."""
    half, height = thing.half_width, thing.half_width * KINDS[thing.kind].height
    step = 2.15 * half
    width = 2 * half + step * (many - 1)
    if width > 0.96 or height > 0.96:
        return []
    for _ in range(25):
        left, foot = rng.uniform(0.02, 0.98 - width), rng.uniform(0.02 + height, 0.98)
        copies = [replace(thing, x=left + half + step * number, y=foot) for number in range(many)]
        if all(_free(copy, things) for copy in copies):
            return copies
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
