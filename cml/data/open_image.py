"""Opening image files, which nobody has checked: a list of formats, a limit on pixels, errors that name the fault.

Pillow reads 16 bits of a single band only, and up to four bands of 8 bits as grey, RGB or CMYK with or without alpha.
All other TIFF files of 8 or 16 bits, such as those of satellites, are read here with the package tifffile.
"""

import contextlib
import errno
import importlib.util
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, TiffImagePlugin, UnidentifiedImageError

from cml.array_types import UInt8, UInt16
from cml.data.bands import ImageFault, upright_rgb
from cml.errors import DataError, UserError, did_you_mean, require_extra
from cml.storage.regular_file import open_regular

MAX_PIXELS = 89_478_485  # an untrusted file may claim any size; beyond this Pillow warns of a bomb, cml refuses it
# Pillow 11.3 and later read it; an earlier one fails at the name
_AVIF = ("AVIF",) if importlib.util.find_spec("PIL.AvifImagePlugin") else ()
# Formats of photographs and masks (MPO is a kind of JPEG): Pillow runs programs for others, such as Ghostscript for EPS
FORMATS = (*_AVIF, "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")

_MOST_LISTED = 100_000  # files of a folder among which the one that was meant is looked for
_LACKS = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC}  # of the machine: the file may be as it should


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
        if getattr(error, "errno", None) in _LACKS:
            raise
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
        mend = "Replace it, or leave it out."
        if isinstance(path, Path) and not path.exists():
            mend = f"Check its path.{_suggest_name(path)}"
        raise DataError(f"{name} {fault}. {mend}") from None


def _suggest_name(path: Path) -> str:
    """Suggest an image that lies there in place of one that does not."""
    try:
        there = [entry.name for entry in itertools.islice(path.parent.iterdir(), _MOST_LISTED)]
    except OSError:  # the folder is not there either
        return f" There is no folder {path.parent}."
    return did_you_mean(path.name, there)


def read_upright(path: Path | bytes) -> Image.Image:
    """Read an image file, or its content, as RGB, turned upright by its EXIF orientation."""
    with open_named_image(path) as image:
        return upright_rgb(image)


_BITS, _PHOTOMETRIC, _SAMPLES, _EXTRA = 258, 262, 277, 338  # tags
_GREY = (0, 1)  # photometric interpretations: white or black is zero
_MOST_BANDS = 4096


def is_deep_tiff(source: Path | bytes) -> bool:
    """Tell from its header whether an image is a TIFF that Pillow does not read whole.

    Returns True for a TIFF of several bands with more than 8 bits, of more than four bands, or of several grey bands.
    False for other files, also for those that cannot be read.
    """
    try:
        with open_regular(source) if isinstance(source, Path) else io.BytesIO(source) as file:
            header = file.read(8)
            if header[:4] not in TiffImagePlugin.PREFIXES:
                return False
            if header[2] == 43 or header[3] == 43:  # BigTIFF
                header += file.read(8)
            tags = TiffImagePlugin.ImageFileDirectory_v2(header)
            file.seek(tags.next)
            tags.load(file)
            samples, bits = int(tags.get(_SAMPLES, 1)), max(tags.get(_BITS, (1,)))
            is_grey = tags.get(_PHOTOMETRIC) in _GREY and (samples > 2 or _EXTRA not in tags)  # not grey with alpha
    except Exception:  # of broken bytes, on which Pillow may raise anything; whoever opens the image reports them
        return False
    return samples > 4 or (samples > 1 and bits > 8) or (samples > 1 and is_grey)


def read_deep_tiff(source: Path | bytes) -> UInt8 | UInt16:  # the bands, (H, W, C) uint8 or uint16
    """Read all bands of the first picture in a TIFF file."""
    with require_extra("tiff", "A TIFF file of several bands with 16 bits, or of more than four bands,"):
        import tifffile
    try:
        if isinstance(source, Path):
            with open_regular(source) as file:
                source = file.read()
        with tifffile.TiffFile(io.BytesIO(source)) as tiff:
            page: Any = tiff.pages[0]
            pixels, bands = page.imagewidth * page.imagelength, page.samplesperpixel
            if pixels > MAX_PIXELS or bands > _MOST_BANDS or pixels * bands > 4 * MAX_PIXELS:
                raise ImageFault(
                    f"has {page.imagewidth} x {page.imagelength} pixels of {bands} bands; the limits are "
                    f"{MAX_PIXELS:,} pixels, {_MOST_BANDS:,} bands and {4 * MAX_PIXELS:,} values"
                )
            if page.dtype not in (np.uint8, np.uint16) or page.axes not in ("YXS", "SYX"):
                raise ImageFault(f"holds {page.dtype} values along {page.axes}; it should hold bands of 8 or 16 bits")
            values: NDArray[Any] = page.asarray()
    except (ImageFault, UserError, MemoryError):
        raise
    except FileNotFoundError:
        raise ImageFault("is missing") from None
    except Exception as error:  # on broken bytes tifffile may raise anything
        if getattr(error, "errno", None) in _LACKS:
            raise
        mend = ": pip install imagecodecs" if "imagecodecs" in str(error) else ""
        raise ImageFault(f"cannot be read: {error or type(error).__name__}{mend}") from None
    return np.ascontiguousarray(np.moveaxis(values, 0, -1) if page.axes == "SYX" else values)
