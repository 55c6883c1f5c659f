"""What drawn data shares with photographs: backgrounds from scikit-learn's two sample photographs, light and noise.

Not for: what is drawn on them (``people.py``, ``scenes.py``).
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter


@functools.cache
def sample_photos() -> tuple[Image.Image, ...]:
    """The two photographs at their own size."""
    from sklearn.datasets import load_sample_images

    return tuple(Image.fromarray(photo) for photo in load_sample_images().images)


def sample_background(rng: np.random.Generator, photo: Image.Image, size: int) -> Image.Image:
    """A random crop of a photograph, (size, size), turned or mirrored, with other colours."""
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
    offset = 20.0 * rng.standard_normal()
    matrix = tuple(np.column_stack([blend, np.full(3, offset)]).ravel().tolist())
    picture = picture.convert("RGB", matrix)
    if rng.random() < 0.4:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1.5) * size / 64))
    return picture


def relight(rng: np.random.Generator, scene: Image.Image) -> NDArray[np.uint8]:
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
