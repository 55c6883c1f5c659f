"""Pictures to show of image files of any bands: the first three bands, as red, green and blue."""

from pathlib import Path

import numpy as np
from PIL import Image

from cml.data.bands import Bands, band_values
from cml.data.deep_tiff import is_deep_tiff, read_deep_tiff
from cml.data.image_fault import ImageFault
from cml.data.images import read_image
from cml.data.open_image import open_named_image
from cml.errors import DataError


def read_picture(path: Path, channels: int = 3) -> Image.Image:
    """Read an image file as an RGB picture to show.

    Returns the picture. Bands of 16 bits are scaled so that the least and the greatest value that it shows are 0 and
    255.
    """
    is_deep = is_deep_tiff(path)
    if channels == 3:
        try:
            return Image.fromarray(read_image(path))
        except DataError:
            if not is_deep:
                raise
    if is_deep:
        try:
            return draw_bands(read_deep_tiff(path))
        except ImageFault as fault:
            raise DataError(f"The image {path} {fault}.") from None
    with open_named_image(path) as image:
        return draw_bands(band_values(image))


def draw_bands(
    values: Bands,  # (H, W, C) uint8, or uint16, which is scaled from its least to its greatest value
) -> Image.Image:  # the picture in RGB
    """Draw the first three bands as red, green and blue, or the first of one or two as grey."""
    shown = values[..., :3] if values.shape[2] >= 3 else values[..., :1].repeat(3, axis=2)
    if shown.dtype == np.uint16:
        low, high = int(shown.min()), int(shown.max())
        shown = ((shown - float(low)) * (255 / max(1, high - low))).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(shown))


def describe_shown_bands(channels: int) -> str:
    """Say what pictures show of images that a backbone takes with ``channels`` bands; "" for RGB and grey."""
    if channels in (1, 3):
        return ""
    return f"Pictures show the first {'three bands' if channels > 3 else 'band'} of {channels}."
