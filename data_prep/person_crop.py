"""Square crops of one person out of a photograph, and the person's joints in the crop's frame.

Coordinates are in pixels, 0 at the outer edge of the first pixel: the first pixel's middle is at 0.5. Joints are
(J, 3): x, y, and 1 if visible; hidden ones are all 0.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from cml.array_types import Float64
from cml.data.exif_orientation import upright_rgb
from cml.data.open_image import open_named_image
from cml.data_prep.jpeg_draft import draft_decode
from cml.data_prep.scale_depth import scale_depth

FRAME = "pixels of the crop: x to the right, y down, 0 at the outer edge of the first pixel"


class Box(NamedTuple):
    """A square in an image, in pixels: x of its left side, y of its top side, and its side."""

    left: float
    top: float
    side: float


def person_box(joints: Float64, margin: float) -> Box:
    """Return the square around a person's visible joints.

    Args:
        joints: Joints in pixels: x, y, and 1 if visible, (J, 3).
        margin: Room that is added on each side, as a share of the longer side of the joints' bounding box.

    Returns:
        The square, in pixels of the photograph.
    """
    places = joints[joints[:, 2] > 0, :2]
    low, high = places.min(axis=0), places.max(axis=0)
    x, y = (low + high) / 2
    return box_around(x, y, max(float((high - low).max()) * (1 + 2 * margin), 1.0))


def box_around(x: float, y: float, side: float) -> Box:
    """Return a square by its centre.

    Args:
        x: Centre from the left, in pixels.
        y: Centre from the top, in pixels.
        side: Side, in pixels.

    Returns:
        The square.
    """
    return Box(float(x - side / 2), float(y - side / 2), float(side))


def into_crop(joints: Float64, box: Box, size: int) -> Float64:
    """Move joints from the photograph's frame into the crop's.

    Args:
        joints: Joints in pixels of the photograph: x, y, and 1 if visible, (J, 3).
        box: The square that is cut out of the photograph.
        size: Side of the crop, in pixels.

    Returns:
        Joints in pixels of the crop, (J, 3); hidden ones are all 0.
    """
    moved = joints.copy()
    moved[:, :2] = (joints[:, :2] - (box.left, box.top)) * (size / box.side)
    moved[joints[:, 2] == 0] = 0
    return moved


def crop_file(photo: Path, box: Box, size: int, bits: int | None = None) -> Image.Image:
    """Cut a square out of a photograph's file. A large JPEG is decoded at a smaller scale, at least twice the crop's.

    Args:
        photo: The file.
        box: The square, in pixels of the upright photograph.
        size: Side of the crop, in pixels.
        bits: The bits that a photograph of 16 bits uses; by default all.

    Returns:
        The crop in RGB, (size, size).

    Raises:
        DataError: The photograph cannot be read.
    """
    with open_named_image(photo if bits is None else scale_depth(photo, bits)) as image:
        reduction = draft_decode(image, box.side, size)
        box = Box(box.left / reduction, box.top / reduction, box.side / reduction)
        return crop(upright_rgb(image), box, size)


def crop(image: Image.Image, box: Box, size: int) -> Image.Image:
    """Cut a square out of an image and resize it with antialiasing. Outside the image, its border pixels are repeated.

    Args:
        image: An RGB image.
        box: The square, in pixels of the image.
        size: Side of the crop, in pixels.

    Returns:
        The crop, (size, size).
    """
    x, y = math.floor(box.left), math.floor(box.top)
    right, bottom = math.ceil(box.left + box.side), math.ceil(box.top + box.side)
    inner = (
        *(min(max(x, 0), image.width - 1), min(max(y, 0), image.height - 1)),
        *(max(min(right, image.width), 1), max(min(bottom, image.height), 1)),
    )
    patch = image.crop(inner)
    if inner != (x, y, right, bottom):
        columns = np.arange(x, right).clip(inner[0], inner[2] - 1) - inner[0]
        rows = np.arange(y, bottom).clip(inner[1], inner[3] - 1) - inner[1]
        patch = Image.fromarray(np.asarray(patch).take(columns, axis=1).take(rows, axis=0))
    left, top = box.left - x, box.top - y
    part = (left, top, min(left + box.side, patch.width), min(top + box.side, patch.height))
    return patch.resize((size, size), Image.Resampling.BICUBIC, box=part)
