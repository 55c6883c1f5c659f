"""Pictures of image files of any bands: encoded for prepared datasets, and read to be shown."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from cml.data.bands import Bands, ImageFault, as_rgb, band_values, turn_upright
from cml.data.images import read_image
from cml.data.open_image import is_deep_tiff, open_image, open_named_image, read_deep_tiff
from cml.errors import DataError
from cml.storage.regular_file import open_regular

_KEPT = {"JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png"}  # MPO: a JPEG followed by a second one, as phones write


class Encoded(NamedTuple):
    """An image file."""

    content: bytes  # the content of the file
    suffix: str  # the suffix of its name: ".jpg", ".png" or ".tif"
    original: int = 0  # the digest of the file that it was made from; 0 where it is that file


@dataclass(frozen=True, slots=True)
class FilePicture:
    """A picture that is made from an image file when it is needed."""

    original: Path
    make: Callable[[Path], Image.Image | bytes]

    def __call__(self) -> Image.Image | bytes:
        """Make the picture."""
        return self.make(self.original)


Picture = Image.Image | Path | bytes | Encoded | Callable[[], Image.Image | bytes]
"""Pixels, an image file, its content, or a function that makes one of them when it is needed."""


def encode(
    picture: Picture,  # pixels, a file, its content, or a function that makes one of them
    quality: int | None = 92,  # the quality of a JPEG, 1 to 95; None for a lossless PNG
) -> Encoded:
    """Encode a picture; files that lose something otherwise are checked and kept as they are.

    These are JPEG and PNG files, and TIFF files of 16 bits or of another number of bands than one and three. Other TIFF
    files, and other formats, become JPEG or PNG.
    """
    if callable(picture):
        picture = picture()
    if isinstance(picture, Encoded):
        return picture
    name = f"The image {picture}" if isinstance(picture, Path) else "The image"
    if isinstance(picture, Path):
        try:
            with open_regular(picture) as file:
                picture = file.read()
        except OSError as error:
            raise DataError(f"{name} cannot be read ({error.strerror}).") from None
    try:
        if isinstance(picture, Image.Image):
            return _encode_pixels(picture, quality)
        if is_deep_tiff(picture):
            _check_deep(picture)
            return Encoded(picture, ".tif")
        with open_image(picture) as image:
            image.load()
            if image.format in _KEPT:
                return Encoded(picture, _KEPT[image.format])
            if image.format == "TIFF" and (image.mode.startswith("I;16") or len(image.getbands()) not in (1, 3)):
                return Encoded(picture, ".tif")
            return _encode_pixels(turn_upright(image), quality)
    except ImageFault as fault:
        raise DataError(f"{name} {fault}.") from None


def _check_deep(content: bytes) -> None:
    """Decode a TIFF file that Pillow does not read whole: by Pillow as far as it can, for tifffile is an extra."""
    try:
        with open_image(content) as image:
            image.load()
    except ImageFault:
        read_deep_tiff(content)


def _encode_pixels(image: Image.Image, quality: int | None) -> Encoded:
    if image.mode not in ("RGB", "L") or image.has_transparency_data:
        image = as_rgb(image)
    return (
        Encoded(image_file_content(image, "PNG"), ".png")
        if quality is None
        else Encoded(image_file_content(image, "JPEG", quality), ".jpg")
    )


def image_file_content(
    image: Image.Image,  # the pixels
    kind: str,
    quality: int = 92,  # the quality of a JPEG, 1 to 95
) -> bytes:
    """Encode pixels in memory, since Pillow hides the error of a full disk."""
    content = io.BytesIO()
    image.save(content, kind, quality=quality)
    return content.getvalue()


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
