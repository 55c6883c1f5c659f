"""Augmentation that keeps label distances: a whole list is mirrored, or single images together with their labels."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cml.array_types import Bools, Int64
from cml.data.images import Pixels, Size

# Random crops of stored images, as whole pixels: of one size at random places, or of random areas and shapes.

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


_AT_ONCE = 1 << 20  # bytes of float pixels: those of a whole batch exceed the CPU's cache and fragment the heap


@dataclass(frozen=True)
class Jitter:
    """How much each image may change, both ways, as fractions; a new crop is drawn whenever an image is used."""

    crop: float = 1.0  # the fraction of the stored image's sides that the centre box covers
    scale: float = 0.0  # the greatest change of the box's side, as a fraction of the stored side
    shift: float = 0.0  # the greatest move of the box's centre on each axis, as a fraction of the stored side
    brightness: float = 0.0  # the greatest change of brightness and of contrast
    # whether boxes lie at random places or are of random areas, see ``draw_crops``; not with ``scale`` or ``shift``
    random_crop: RandomCrop = "none"


def center_box(
    images: Pixels,  # the images, (B, H, W, C)
    image_size: Size,  # (h, w) of the box in pixels
) -> Tensor:  # the boxes, (B, C, h, w) of the same type
    """Cut out the centre box of stored images."""
    (height, width), (h, w) = images.shape[1:3], image_size
    top, left = (height - h) // 2, (width - w) // 2
    return torch.from_numpy(np.ascontiguousarray(images[:, top : top + h, left : left + w])).permute(0, 3, 1, 2)


def jitter_boxes(
    images: Pixels,  # the images, (B, H, W, C), uint8 or float32 from 0 to 255
    image_size: Size,  # (h, w) of the box in pixels
    jitter: Jitter,
    rng: np.random.Generator,
    *,
    part: slice = slice(None),
    total: int | None = None,
) -> Tensor:  # the boxes, (B, C, h, w); those of uint8 images are rounded to whole levels, float32 ones are not
    """Cut out a random box of each stored image; without jitter, the centre box."""
    count = len(images)
    drawn_for = count if total is None else total
    moves, shades = bool(jitter.scale or jitter.shift), bool(jitter.brightness)
    crops = None
    if jitter.random_crop != "none":
        crops = draw_crops(jitter.random_crop, drawn_for, images.shape[1:3], image_size, rng)[part]
    if moves:
        # an affine grid on the whole stored image: box side s and centre (x, y) in units of half the image's side
        theta = torch.zeros(count, 2, 3)
        side = jitter.crop + rng.uniform(-jitter.scale, jitter.scale, drawn_for)[part]
        theta[:, 0, 0] = theta[:, 1, 1] = torch.from_numpy(side)
        theta[:, :, 2] = torch.from_numpy(2 * rng.uniform(-jitter.shift, jitter.shift, (drawn_for, 2))[part])
    if shades:
        drawn = 1 + rng.uniform(-jitter.brightness, jitter.brightness, (2, drawn_for, 1, 1, 1))[:, part]
        contrast, brightness = torch.from_numpy(drawn).float()
    if not (moves or shades or crops is not None):
        return center_box(images, image_size)
    channels = images.shape[3]
    is_whole = images.dtype == np.uint8
    boxes = torch.empty(count, channels, *image_size, dtype=torch.uint8 if is_whole else torch.float32)
    some = max(1, _AT_ONCE // (4 * images[0].size)) if count else 1
    for start in range(0, count, some):
        now = slice(start, start + some)
        if moves:
            pixels = torch.from_numpy(images[now]).permute(0, 3, 1, 2).float()
            grid = functional.affine_grid(theta[now], [len(pixels), channels, *image_size], align_corners=False)
            box = functional.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
            box = box.round_() if is_whole else box
        elif crops is not None:
            box = cut_crops(images[now], crops[now], image_size).float()
        else:
            box = center_box(images[now], image_size).float()
        if shades:
            level = box.mean(dim=(1, 2, 3), keepdim=True)
            box = box.sub(level).mul_(contrast[now]).add_(level * brightness[now])
            box = (box.round_() if is_whole else box).clamp_(0, 255)
        boxes[now] = box
    return boxes


def mirror_images(images: Tensor, which: Bools) -> Tensor:  # images (B, C, h, w), which (B,) -> (B, C, h, w)
    """Mirror some images left to right."""
    if not which.any():
        return images
    return torch.where(torch.from_numpy(which)[:, None, None, None], images.flip(3), images)
