"""Square crops of one person out of a photograph, and the person's joints in the crop's frame.

Coordinates are in pixels, 0 at the outer edge of the first pixel: the first pixel's middle is at 0.5. Joints are
(J, 3): x, y, and 1 if visible; hidden ones are all 0.
"""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageFile

from cml.array_types import Float64
from cml.data.bands import is_upright, upright_rgb
from cml.data.open_image import open_named_image
from cml.data_prep.scale_depth import scale_depth

# Draft decoding of JPEGs: a large photograph is decoded at 1/2, 1/4 or 1/8 of its size, which saves much time.

_REDUCTIONS = (8, 4, 2)  # that libjpeg offers below the full size


def draft_decode(
    image: ImageFile.ImageFile,
    side: float,  # side of the square to crop, in pixels of the photograph
    size: int,  # side of the crop after resizing, in pixels. The square is decoded at twice this size at least
) -> int:  # the reduction, 1, 2, 4 or 8: pixels of the photograph per pixel of the decoded image
    """Ask Pillow to decode a JPEG smaller, if a crop of it will be shrunk by far more; other formats are unchanged."""
    width, height = image.size
    reduction = next((times for times in _REDUCTIONS if side >= 2 * size * times), 1)
    # A side that is not a multiple of the reduction is rounded up at its end, which is its beginning once the
    # photograph is turned upright.
    if is_upright(image) or (width % reduction, height % reduction) == (0, 0):
        image.draft("RGB", (max(width // reduction, 1), max(height // reduction, 1)))
    return round(width / image.width)  # exact for a JPEG, whose blocks of 8 pixels became smaller blocks; else 1


FRAME = "pixels of the crop: x to the right, y down, 0 at the outer edge of the first pixel"


class Box(NamedTuple):
    """A square in an image, in pixels: x of its left side, y of its top side, and its side."""

    left: float
    top: float
    side: float


def person_box(
    joints: Float64,  # joints in pixels: x, y, and 1 if visible, (J, 3)
    margin: float,
) -> Box:  # the square, in pixels of the photograph
    """Return the square around a person's visible joints."""
    places = joints[joints[:, 2] > 0, :2]
    low, high = places.min(axis=0), places.max(axis=0)
    x, y = (low + high) / 2
    return box_around(x, y, max(float((high - low).max()) * (1 + 2 * margin), 1.0))


def box_around(
    x: float,  # centre from the left, in pixels
    y: float,  # centre from the top, in pixels
    side: float,  # side, in pixels
) -> Box:
    """Return a square by its centre."""
    return Box(float(x - side / 2), float(y - side / 2), float(side))


def into_crop(
    joints: Float64,  # joints in pixels of the photograph: x, y, and 1 if visible, (J, 3)
    box: Box,
    size: int,  # side of the crop, in pixels
) -> Float64:  # joints in pixels of the crop, (J, 3); hidden ones are all 0
    """Move joints from the photograph's frame into the crop's."""
    moved = joints.copy()
    moved[:, :2] = (joints[:, :2] - (box.left, box.top)) * (size / box.side)
    moved[joints[:, 2] == 0] = 0
    return moved


def crop_file(
    photo: Path,
    box: Box,  # the square, in pixels of the upright photograph
    size: int,  # side of the crop, in pixels
    bits: int | None = None,
) -> Image.Image:  # the crop in RGB, (size, size)
    """Cut a square out of a photograph's file. A large JPEG is decoded at least at twice the crop's scale."""
    with open_named_image(photo if bits is None else scale_depth(photo, bits)) as image:
        reduction = draft_decode(image, box.side, size)
        box = Box(box.left / reduction, box.top / reduction, box.side / reduction)
        return crop(upright_rgb(image), box, size)


def crop(
    image: Image.Image,  # an RGB image
    box: Box,  # the square, in pixels of the image
    size: int,  # side of the crop, in pixels
) -> Image.Image:
    """Cut a square out of an image and resize it with antialiasing. Outside it, border pixels are repeated."""
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
