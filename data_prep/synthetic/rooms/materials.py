"""Materials of drawn rooms: linear colours at places in metres. Patterns finer than a pixel fade to their mean."""

import colorsys
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cml.array_types import Float32, Int32
from cml.data_prep.synthetic.random_choice import Rng, pick

Colour = tuple[float, float, float]  # red, green and blue, linear, 0 to 1


Pattern = Literal["plain", "stripes", "tiles", "bricks", "checks", "dots", "cloth", "diamonds"]


_GAMMA = 2.2


_CELLS = 4096  # of noise; steps to the next cell across and down that meet again after some 60 steps only


_ACROSS, _DOWN = np.int32(1), np.int32(1597)


_NOISE = np.random.default_rng(0).random(_CELLS, np.float32)


@dataclass(frozen=True)
class Material:
    """A colour and a pattern of a second one."""

    colour: Colour  # ground colour
    pattern: Pattern = "plain"  # what is on it
    second: Colour = (0.5, 0.5, 0.5)  # the pattern's colour: stripes, grout, dots, every other check
    size: tuple[float, float] = (0.5, 0.5)  # (2,) width and height of the pattern's repeat in metres
    line: float = 0.1  # share of the repeat that the second colour takes in stripes, grout and dots
    uneven: float = 0.03  # how much the tone varies from tile to tile or plank to plank, or cloudily in other patterns
    key: int = 0  # decides where

    def at(
        self,
        u: Float32,  # places along the surface in metres, (N,)
        v: Float32,  # places up the surface in metres, (N,)
        blur: Float32,  # width of a pixel at each place in metres, (N,)
    ) -> Float32:  # linear colours, (3, N)
        """Return the material's colours."""
        a, b = u / np.float32(self.size[0]), v / np.float32(self.size[1])
        if self.pattern == "bricks":
            a = a + hash_cell(np.floor(b), np.zeros_like(b), self.key)
        elif self.pattern == "diamonds":
            a, b = a + b, a - b
        share, mean = self._second(a, b)
        fade = np.clip(1.6 - 3 * blur / min(self.size), 0, 1)
        weight = mean + (share - mean) * fade
        if self.pattern in ("tiles", "bricks", "checks"):
            tone = (hash_cell(np.floor(a), np.floor(b), self.key) - 0.5) * fade
        else:
            tone = sample_noise(u * 1.7, v * 1.7, self.key) - 0.5
            if self.pattern == "cloth":  # threads and fibres
                grain = np.clip(1.2 - 20 * blur, 0, 1)
                tone = tone + grain * (hash_cell(np.floor(u * 60), np.floor(v * 60), self.key) - 0.5)
        tone = 1 + np.float32(2 * self.uneven) * tone
        colours = np.empty((3, len(u)), np.float32)
        for channel, (ground, second) in enumerate(zip(self.colour, self.second, strict=True)):
            np.multiply(tone, ground + np.float32(second - ground) * weight, out=colours[channel])
        return colours

    def _second(self, a: Float32, b: Float32) -> tuple[Float32, float]:
        """The share of the second colour at places (N,) in units of the repeat, and its mean over a large area.

        The mean is what a pattern too fine to be seen fades to.
        """
        match self.pattern:
            case "stripes":
                share, mean = a - np.floor(a) < self.line, self.line
            case "tiles" | "bricks":
                wide, high = (self.line * min(self.size) / length for length in self.size)
                share, mean = (a - np.floor(a) < wide) | (b - np.floor(b) < high), 1 - (1 - wide) * (1 - high)
            case "checks" | "diamonds":
                share, mean = (np.floor(a) + np.floor(b)) % 2, 0.5
            case "dots":
                share = (a - np.floor(a) - 0.5) ** 2 + (b - np.floor(b) - 0.5) ** 2 < self.line / np.pi
                mean = self.line
            case _:
                share, mean = np.zeros_like(a), 0.0
        return share.astype(np.float32), mean


def hash_cell(
    a: Float32,  # first whole numbers, (N,)
    b: Float32,  # second whole numbers, (N,)
    key: int,
) -> Float32:  # numbers from 0 to 1, (N,)
    """Hash pairs of whole numbers to random ones. They show no order, and repeat after some 60 whole numbers."""
    return _NOISE[_cell(a, b, key)]


def sample_noise(a: Float32, b: Float32, key: int) -> Float32:  # numbers from 0 to 1, of the same shape
    """Return smooth noise with bumps about 1 wide."""
    low_a, low_b = np.floor(a), np.floor(b)
    cell = _cell(low_a, low_b, key)
    part_a, part_b = a - low_a, b - low_b
    part_a, part_b = part_a * part_a * (3 - 2 * part_a), part_b * part_b * (3 - 2 * part_b)
    near, far = _NOISE[cell], _NOISE[(cell + _DOWN) % _CELLS]
    near = near + part_a * (_NOISE[(cell + _ACROSS) % _CELLS] - near)
    far = far + part_a * (_NOISE[(cell + (_ACROSS + _DOWN)) % _CELLS] - far)
    smooth: Float32 = near + part_b * (far - near)
    return smooth


def _cell(a: Float32, b: Float32, key: int) -> Int32:
    place: Int32 = (a.astype(np.int32) * _ACROSS + b.astype(np.int32) * _DOWN + key % _CELLS) % _CELLS
    return place


def linear(
    red: float,  # red, 0 to 1
    green: float,  # green, 0 to 1
    blue: float,  # blue, 0 to 1
) -> Colour:
    """Convert a colour as screens show it to a linear one."""
    return red**_GAMMA, green**_GAMMA, blue**_GAMMA


def tint(
    rng: Rng,
    *,
    light: tuple[float, float],  # lowest and highest brightness, as screens show it, 0 to 1
    vivid: tuple[float, float],  # lowest and highest saturation, 0 to 1
) -> Colour:
    """Draw a random colour of any hue."""
    hue = rng.choice([rng.random(), rng.uniform(0.05, 0.15), rng.uniform(0.5, 0.65)], p=[0.4, 0.35, 0.25])
    return linear(*colorsys.hsv_to_rgb(float(hue), rng.uniform(*vivid), rng.uniform(*light)))


def darker(colour: Colour, by: float) -> Colour:
    """Multiply a colour by a factor; the result is white at most."""
    return tuple(min(1.0, by * part) for part in colour)  # type: ignore[return-value]


def sample_wood(rng: Rng) -> Material:
    """Wood in boards, from birch to ebony, sometimes painted."""
    base = pick(rng, _WOODS)
    if rng.random() < 0.15:
        base = tint(rng, light=(0.6, 0.97), vivid=(0.0, 0.15))
    base = darker(base, rng.uniform(0.75, 1.25))
    size = (rng.uniform(0.6, 1.6), rng.uniform(0.07, 0.2))
    line, uneven = rng.uniform(0.02, 0.08), rng.uniform(0.05, 0.3)
    return Material(base, "bricks", darker(base, 0.45), size, line, uneven, sample_key(rng))


def sample_tiles(rng: Rng) -> Material:
    """Stone or ceramic tiles."""
    base = tint(rng, light=(0.35, 0.95), vivid=(0.0, 0.4))
    side = rng.uniform(0.12, 0.6)
    size = (side, side if rng.random() < 0.6 else side * rng.uniform(0.4, 0.7))
    if rng.random() < 0.25:
        second = tint(rng, light=(0.1, 0.95), vivid=(0.0, 0.4))
        return Material(base, "checks", second, (side, side), 0.5, rng.uniform(0.02, 0.1), sample_key(rng))
    grout = darker(base, rng.choice([0.4, 0.6, 1.5]))
    pattern: Pattern = "tiles" if rng.random() < 0.7 else "bricks"
    return Material(base, pattern, grout, size, rng.uniform(0.02, 0.08), rng.uniform(0.0, 0.12), sample_key(rng))


def sample_cloth(rng: Rng) -> Material:
    """Carpet, upholstery, curtains: plain or with a pattern."""
    base = tint(rng, light=(0.12, 0.95), vivid=(0.0, 0.75))
    plain = Material(base, "cloth", key=sample_key(rng), uneven=rng.uniform(0.03, 0.12))
    if rng.random() < 0.65:
        return plain
    pattern = pick(rng, _CLOTHS)
    second = tint(rng, light=(0.12, 0.95), vivid=(0.0, 0.75))
    side = rng.uniform(0.06, 0.4)
    return replace(plain, pattern=pattern, second=second, size=(side, side), line=rng.uniform(0.15, 0.5))


def sample_paint(rng: Rng) -> Material:
    """A wall's paint or wallpaper, seldom bricks or boards."""
    base = tint(rng, light=(0.62, 0.97), vivid=(0.0, 0.24))
    if rng.random() < 0.1:  # a strong colour
        base = tint(rng, light=(0.2, 0.8), vivid=(0.25, 0.7))
    plain = Material(base, uneven=rng.uniform(0.0, 0.06), key=sample_key(rng))
    kind = rng.random()
    if kind < 0.62:
        return plain
    if kind < 0.9:
        second = darker(base, rng.choice([0.55, 0.75, 0.85, 1.2]))
        if rng.random() < 0.12:
            second = tint(rng, light=(0.3, 0.95), vivid=(0.0, 0.5))
        pattern = pick(rng, _PAPERS)
        size = (rng.uniform(0.08, 0.5), rng.uniform(0.08, 0.5))
        return replace(plain, pattern=pattern, second=second, size=size, line=rng.uniform(0.12, 0.5))
    if kind < 0.96:
        clay = linear(rng.uniform(0.5, 0.8), rng.uniform(0.3, 0.5), rng.uniform(0.22, 0.42))
        clay = clay if rng.random() < 0.6 else base
        return Material(clay, "bricks", darker(clay, 1.6), (0.25, 0.075), 0.12, 0.2, sample_key(rng))
    return sample_wood(rng)


def sample_key(rng: Rng) -> int:
    """A key of a material's noise."""
    return int(rng.integers(2**31))


_CLOTHS: tuple[Pattern, ...] = ("stripes", "checks", "dots", "diamonds")


_PAPERS: tuple[Pattern, ...] = ("stripes", "stripes", "dots", "diamonds", "tiles")


_BOARDS = ((212, 178, 130), (178, 130, 84), (140, 92, 56), (98, 62, 40), (62, 44, 34), (150, 140, 128))


_WOODS = tuple(linear(red / 255, green / 255, blue / 255) for red, green, blue in _BOARDS)
