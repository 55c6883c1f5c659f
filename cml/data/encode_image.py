"""Encoding the images of prepared datasets; JPEG and PNG files are kept byte for byte."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from PIL import Image, ImageOps

from cml.data.images import ImageFault, as_rgb, open_image
from cml.errors import DataError
from cml.storage.atomic import open_regular

_KEPT = {"JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png"}  # MPO: a JPEG followed by a second one, as phones write


class Encoded(NamedTuple):
    """An image file."""

    content: bytes
    suffix: str


Picture = Image.Image | Path | bytes | Encoded | Callable[[], Image.Image | bytes]
"""Pixels, an image file, its content, or a function that makes one of them when it is needed."""


def encode(picture: Picture, quality: int | None = 92) -> Encoded:
    """The content of the file for a picture; JPEG and PNG files are checked and kept as they are."""
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
        with open_image(picture) as image:
            image.load()
            if image.format in _KEPT and not image.mode.startswith("I"):  # libraries read 16 bits differently
                return Encoded(picture, _KEPT[image.format])
            return _encode_pixels(ImageOps.exif_transpose(image), quality)
    except ImageFault as fault:
        raise DataError(f"{name} {fault}.") from None


def _encode_pixels(image: Image.Image, quality: int | None) -> Encoded:
    if image.mode not in ("RGB", "L") or image.has_transparency_data:
        image = as_rgb(image)
    return (
        Encoded(image_file_content(image, "PNG"), ".png")
        if quality is None
        else Encoded(image_file_content(image, "JPEG", quality), ".jpg")
    )


def image_file_content(image: Image.Image, kind: str, quality: int = 92) -> bytes:
    """The content of an image file, in memory, since Pillow hides the error of a full disk."""
    content = io.BytesIO()
    image.save(content, kind, quality=quality)
    return content.getvalue()
