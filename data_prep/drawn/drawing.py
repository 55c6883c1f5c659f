"""What all drawn data shares: drawing on several processes, photographs behind, light and the camera's noise."""

import functools
import itertools
import math
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from cml.errors import UserError

T = TypeVar("T")
Rng = np.random.Generator
Photos = tuple[Image.Image, ...]
Draw = Callable[[Rng, int], tuple[Any, ...]]
"""Draws one item of a size with a generator of its own; other processes can import it."""

_CHUNK = 100  # items that one process draws at a time


def draw_items(name: str, draw: Draw, count: int, *, size: int, seed: int, workers: int) -> list[Any]:
    """For each thing that ``draw`` gives, those of ``count`` items in order, arrays stacked; ``name`` is for errors.

    Item i has the generator of ``SeedSequence(seed, spawn_key=(i,))``: it depends on seed, size and i alone, so that a
    longer run begins with the items of a shorter one. More than one worker start new interpreters, so that a script
    needs the usual ``if __name__ == "__main__"``.
    """
    for argument, value, least in (("count", count, 1), ("size", size, 16), ("seed", seed, 0), ("workers", workers, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise UserError(f"{name}: {argument} must be a whole number of at least {least}, got {value!r}")
    chunk = functools.partial(_draw_chunk, draw, size=size, seed=seed)
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    if workers == 1 or len(chunks) == 1:
        drawn = [chunk(items) for items in chunks]
    else:
        # Fresh interpreters: a fork would copy the locks of the threads that torch and BLAS hold.
        context = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
                drawn = list(pool.map(chunk, chunks))
        except BrokenProcessPool:
            script = f"with workers={workers} call it from a script file below `if __name__ == '__main__'`"
            raise UserError(f"{name}: a worker process ended; {script}, or use workers=1") from None
    columns = zip(*itertools.chain.from_iterable(drawn), strict=True)
    return [np.stack(column) if isinstance(column[0], np.ndarray) else column for column in columns]


def _draw_chunk(draw: Draw, items: range, size: int, seed: int) -> list[tuple[Any, ...]]:
    seeds = (np.random.SeedSequence(seed, spawn_key=(item,)) for item in items)
    return [draw(np.random.default_rng(own), size) for own in seeds]


def pick(rng: Rng, choices: Sequence[T]) -> T:
    """One of some choices, each as likely."""
    return choices[int(rng.integers(len(choices)))]


@functools.cache
def sample_photos() -> Photos:
    """Scikit-learn's two sample photographs at their own size."""
    from sklearn.datasets import load_sample_images

    return tuple(Image.fromarray(photo) for photo in load_sample_images().images)


def sample_background(rng: Rng, photos: Photos, size: int) -> Image.Image:
    """A random crop of a photograph, (size, size), turned or mirrored, with other colours."""
    photo = pick(rng, photos)
    side = min(photo.size) * rng.uniform(0.12, 1.0)
    left, top = (photo.width - side) * rng.random(), (photo.height - side) * rng.random()
    box = (left, top, left + side, top + side)
    picture = photo.resize((size, size), Image.Resampling.BILINEAR, box, reducing_gap=1.5)
    if rng.random() < 0.5:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if rng.random() < 0.25:
        picture = picture.transpose(Image.Transpose.TRANSPOSE)
    blend = np.eye(3) + rng.normal(0.0, 0.25, (3, 3))  # of the colour channels
    blend *= rng.uniform(0.5, 1.2) / blend.sum(1, keepdims=True).clip(0.5)
    offset = np.full(3, 20.0 * rng.standard_normal())
    picture = picture.convert("RGB", tuple(np.column_stack([blend, offset]).ravel().tolist()))
    if rng.random() < 0.4:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.5) * size / 64))
    return picture


def relight(rng: Rng, scene: Image.Image) -> NDArray[np.uint8]:
    """Exposure, contrast, a gradient of light, a colour cast, and the camera's noise."""
    pixels = np.asarray(scene, np.float32)  # (size, size, 3)
    angle, steepness = rng.uniform(0.0, 2 * math.pi), rng.uniform(0.0, 0.5)
    ramp = np.linspace(-0.5 * steepness, 0.5 * steepness, len(pixels), dtype=np.float32)
    light = 1 + math.cos(angle) * ramp[None, :] + math.sin(angle) * ramp[:, None]
    cast = rng.uniform(0.85, 1.25) * (1 + np.clip(rng.normal(0.0, 0.07, 3), -0.2, 0.2))
    contrast, noise = rng.uniform(0.75, 1.15), rng.uniform(1.0, 6.0)
    pixels = (pixels - 118.0) * contrast + 118.0
    pixels *= light[..., None] * cast.astype(np.float32)
    pixels += noise * rng.standard_normal(pixels.shape, np.float32)
    return np.clip(pixels, 0.0, 255.0, out=pixels).astype(np.uint8)
