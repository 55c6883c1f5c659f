"""Opening image files, which nobody has checked: a list of formats, a limit on pixels, errors that name the fault."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from cml.data.exif_orientation import upright_rgb
from cml.data.image_fault import ImageFault
from cml.errors import DataError, UserError
from cml.storage.regular_file import open_regular

MAX_PIXELS = 89_478_485  # an untrusted file may claim any size; beyond this Pillow warns of a bomb, cml refuses it
# Formats of photographs and masks (MPO is a kind of JPEG): Pillow runs programs for others, such as Ghostscript for EPS
FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")


@contextlib.contextmanager
def open_image(
    source: Path | bytes,
) -> Iterator[ImageFile.ImageFile]:  # the image, which Pillow decodes when its pixels are needed
    """Open an image file, or its content; all images are opened here, with the same limits."""
    pixels = 0
    try:
        with (
            open_regular(source) if isinstance(source, Path) else io.BytesIO(source) as file,
            Image.open(file, formats=FORMATS) as image,
        ):
            if (pixels := image.width * image.height) > MAX_PIXELS:
                raise ImageFault(f"has {image.width} x {image.height} pixels; the limit is {MAX_PIXELS:,}")
            yield image
    except (ImageFault, UserError):
        raise
    except FileNotFoundError:
        raise ImageFault("is missing") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageFault(f"claims more pixels than the limit, {MAX_PIXELS:,}") from None
    except UnidentifiedImageError:
        raise ImageFault(f"cannot be read: it is none of {', '.join(FORMATS)}") from None
    except Exception as error:  # on broken bytes Pillow may raise anything
        if isinstance(error, MemoryError) or "out of memory" in str(error) or not _room_for(pixels):
            raise MemoryError(f"while decoding {source if isinstance(source, Path) else 'an image'}") from None
        raise ImageFault(f"cannot be read: {error or type(error).__name__}") from None


def _room_for(pixels: int) -> bool:
    """Whether there is memory to decode so many pixels; if not, libjpeg reports broken data."""
    try:
        np.empty(10 * pixels, np.uint8)  # 4 bytes per pixel, and 6 of coefficients in a progressive JPEG
    except MemoryError:
        return False
    return True


@contextlib.contextmanager
def open_named_image(
    path: Path | bytes,
) -> Iterator[ImageFile.ImageFile]:  # the image, which Pillow decodes when its pixels are needed
    """Open an image file, or its content, with errors that name the file."""
    try:
        with open_image(path) as image:
            yield image
    except ImageFault as fault:
        name = f"The image {path}" if isinstance(path, Path) else "The image"
        raise DataError(f"{name} {fault}. Replace it or remove it from the data.") from None


def read_upright(path: Path | bytes) -> Image.Image:
    """Read an image file, or its content, as RGB, turned upright by its EXIF orientation."""
    with open_named_image(path) as image:
        return upright_rgb(image)
