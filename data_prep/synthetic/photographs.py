"""Photographs behind drawn things: random crops of scikit-learn's two sample photographs."""

import functools

import numpy as np
from PIL import Image, ImageFilter

from cml.data_prep.synthetic.random_choice import Rng, pick

Photos = tuple[Image.Image, ...]


@functools.cache
def sample_photos() -> Photos:
    """Scikit-learn's two sample photographs at their own size."""
    from sklearn.datasets import load_sample_images

    return tuple(Image.fromarray(photo) for photo in load_sample_images().images)


def sample_background(
    rng: Rng,
    photos: Photos,
    size: int,  # side of the square, in pixels
) -> Image.Image:  # the square in RGB, (size, size)
    """Cut a random square out of a photograph, mirror or transpose it at random, and change its colours."""
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
