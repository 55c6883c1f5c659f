"""Random crops of stored images, as whole pixels: of one size at random places, or of random areas and shapes."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cml.array_types import Int64
from cml.data.images import Pixels, Size

RandomCrop = Literal["none", "place", "area"]
AREA = (0.08, 1.0)  # of the stored image's
ASPECT = (3 / 4, 4 / 3)  # width / height
_DRAWS = 10  # areas and shapes that are drawn for an image until one fits into it


def draw_crops(
    # ``place``: boxes of ``image_size`` at places drawn uniformly. ``area``: boxes of 8 to 100 % of the area, drawn
    # uniformly, with width / height from 3/4 to 4/3, its logarithm drawn uniformly, at a uniform place; the whole image
    # where none of ten draws fits into it. These are the numbers of torchvision's ``RandomResizedCrop``
    kind: RandomCrop,
    count: int,
    stored: Size,  # (height, width) in pixels of the stored images
    image_size: Size,  # (height, width) in pixels that the network takes
    rng: np.random.Generator,
) -> Int64:  # (N, 4) top, left, height and width in pixels
    """Draw a box for each image.

    Reference:
        Szegedy et al.: Going Deeper with Convolutions, CVPR 2015, for ``area``.
    """
    height, width = stored
    if kind == "place":
        sides = np.broadcast_to(np.array(image_size), (count, 2))
    else:
        areas = height * width * rng.uniform(*AREA, (count, _DRAWS))
        aspects = np.exp(rng.uniform(math.log(ASPECT[0]), math.log(ASPECT[1]), (count, _DRAWS)))
        drawn = np.stack([np.rint(np.sqrt(areas / aspects)), np.rint(np.sqrt(areas * aspects))], axis=2)
        fits = np.all((drawn >= 1) & (drawn <= (height, width)), axis=2)
        first = drawn[np.arange(count), fits.argmax(axis=1)]
        sides = np.where(np.any(fits, axis=1, keepdims=True), first, (height, width)).astype(np.int64)
    corners = rng.integers(0, np.array(stored) - sides + 1)
    return np.concatenate([corners, sides], axis=1)


def cut_crops(
    images: Pixels,  # the images, (B, H, W, C), uint8 or float32
    crops: Int64,  # (B, 4) of ``draw_crops``
    image_size: Size,  # (h, w) in pixels
) -> Tensor:  # the boxes, (B, C, h, w) of the same type
    """Cut boxes out of images, and resize them bilinearly with antialiasing."""
    from torchvision.transforms.v2.functional import resized_crop

    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    return torch.stack(
        [resized_crop(image, *box, list(image_size)) for image, box in zip(pixels, crops.tolist(), strict=True)]
    )
