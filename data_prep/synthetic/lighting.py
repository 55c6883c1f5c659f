"""Light and camera noise over a drawn picture."""

import math

import numpy as np
from PIL import Image

from cml.array_types import UInt8
from cml.data_prep.synthetic.random_choice import Rng


def relight(
    rng: Rng,
    scene: Image.Image,  # the picture in RGB, (size, size)
) -> UInt8:  # the pixels, (size, size, 3)
    """Change the light of a drawn picture at random.

    Exposure, contrast, a gradient, a colour cast and the camera's noise.
    """
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
