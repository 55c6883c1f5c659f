"""Reading images at one stored size, by one decoder and resizer; kept in memory if they fit, else decoded on demand."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from cml.errors import DataError, UserError
from cml.storage.atomic import open_regular

UInt8 = NDArray[np.uint8]
Size = tuple[int, int]  # (height, width) in pixels
_ORIENTATION = 0x0112  # EXIF tag: how the camera was held
MAX_PIXELS = 89_478_485  # an untrusted file may claim any size; beyond this Pillow warns of a bomb, cml refuses it
# Formats of photographs and masks (MPO is a kind of JPEG): Pillow runs programs for others, such as Ghostscript for EPS
FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
_PIECE = 256  # images that a thread decodes at a time, if there are many
PIXELS = 2  # version of the pixels that a file becomes, part of the keys of caches
RESIZING = (
    "Bilinear with antialiasing, the aspect not kept: first the width, then the height, each rounded to whole numbers. "
    "Where a side is scale times as long as wanted, its pixel i is the mean of the pixels x with the weights "
    "max(0, 1 - |x + 0.5 - (i + 0.5) * scale| / max(1, scale))."
)


def read_image(path: Path | bytes, size: Size | None = None) -> UInt8:
    """An image file, or its content, as RGB (H, W, 3), upright, ``resized`` if a size is given; or a DataError."""
    with open_named_image(path) as image:
        upright = upright_rgb(image)
        # no draft mode: JPEGs decoded at a smaller scale would differ from images that were already decoded
        return np.asarray(upright if size is None else resize_image(upright, size))


def resize_image(image: Image.Image, size: Size, box: tuple[float, float, float, float] | None = None) -> Image.Image:
    """An RGB image, or a box of it (left, top, right, bottom in pixels), resized as ``RESIZING`` says."""
    return image.resize((size[1], size[0]), Image.Resampling.BILINEAR, box=box)


class ImageFault(ValueError):
    """What is wrong with an image file, to follow its name: "cannot be read: ..", without a full stop."""


@contextlib.contextmanager
def open_image(source: Path | bytes) -> Iterator[ImageFile.ImageFile]:
    """Open an image file, or its content; all images are opened here, with the same limits."""
    # errors in the block, where it is decoded, are an ImageFault too; a full memory is not the image's fault
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
def open_named_image(path: Path | bytes) -> Iterator[ImageFile.ImageFile]:
    """``opened`` with errors that name the file, also those in the ``with`` block."""
    try:
        with open_image(path) as image:
            yield image
    except ImageFault as fault:
        name = f"The image {path}" if isinstance(path, Path) else "The image"
        raise DataError(f"{name} {fault}. Replace it or remove it from the data.") from None


def is_upright(image: Image.Image) -> bool:
    """Whether an opened image need not be turned by its EXIF orientation."""
    return bool(image.getexif().get(_ORIENTATION, 1) == 1)


def upright_rgb(image: Image.Image) -> Image.Image:
    """Decode an opened image to RGB, turned upright by its EXIF orientation."""
    if is_upright(image) and image.mode == "RGB" and not image.has_transparency_data:
        image.load()
        return image  # the usual case: no copy
    return as_rgb(ImageOps.exif_transpose(image))


class Images:
    """N images of one stored size: paths, Pillow images and arrays (H, W, 3) uint8, or one array (N, H, W, 3)."""

    def __init__(
        self, source: Sequence[Path | Image.Image | UInt8] | UInt8, size: Size, *, cache_bytes: int = 1 << 30
    ) -> None:
        if isinstance(source, np.ndarray) and (source.ndim != 4 or source.shape[3] != 3 or source.dtype != np.uint8):
            raise UserError(
                f"The 'images' must be an array (N, H, W, 3) of uint8. Got {source.shape}, {source.dtype} instead."
            )
        self.size, self._cache_bytes = size, cache_bytes
        self._source: Any = source
        self._cache = source if isinstance(source, np.ndarray) and source.shape[1:3] == size else None

    def __len__(self) -> int:
        return len(self._source)

    @property
    def paths(self) -> Sequence[Path] | None:
        """The files; None if some images are not files."""
        is_files = not isinstance(self._source, np.ndarray) and all(isinstance(one, Path) for one in self._source)
        return self._source if is_files else None

    def subset(self, items: slice) -> "Images":
        """A part of the images, which shares the memory of decoded ones."""
        part = Images(self._source[items], self.size, cache_bytes=self._cache_bytes)
        part._cache = None if self._cache is None else self._cache[items]
        return part

    def load(self) -> None:
        """Decode all images now if they fit into memory."""
        if self._cache is None and len(self) * self.size[0] * self.size[1] * 3 <= self._cache_bytes:
            self._cache = self._decode(np.arange(len(self)))

    def read(self, items: NDArray[np.integer]) -> UInt8:
        """The images of ``items`` (B,): (B, H, W, 3) uint8 of the stored size."""
        return self._cache[items] if self._cache is not None else self._decode(items)

    def _decode(self, items: NDArray[np.integer]) -> UInt8:
        images = np.empty((len(items), *self.size, 3), np.uint8)

        def decode(start: int) -> None:
            for row in range(start, min(start + piece, len(items))):
                images[row] = self._decoded(items[row])

        # Pillow decodes and resizes outside the interpreter lock. Handing out small images one by one would take longer
        # than decoding them
        piece = min(_PIECE, 1 + len(items) // 16)
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(decode, range(0, len(items), piece)):
                pass
        return images

    def _decoded(self, item: int) -> UInt8:
        if isinstance(entry := self._source[item], Path):
            return read_image(entry, self.size)
        try:
            image = Image.fromarray(entry) if isinstance(entry, np.ndarray) else upright_rgb(entry)
        except ImageFault as fault:
            raise DataError(f"The image number {item} {fault}.") from None
        return np.asarray(resize_image(image, self.size))


def native_size(path: Path | bytes) -> Size:
    """(height, width) of an image file, turned upright, read from its header."""
    with open_named_image(path) as image:
        turned = image.getexif().get(_ORIENTATION, 1) >= 5  # the four orientations that swap the sides
        return (image.width, image.height) if turned else (image.height, image.width)


def as_rgb(image: Image.Image) -> Image.Image:
    """The image in RGB, 8 bits per channel; transparent parts become white."""
    if image.mode.startswith(("I", "F")):  # Pillow's own conversion would clip at 255
        values = np.asarray(image)
        low, high = values.min(initial=0), values.max(initial=0)
        if image.mode == "F" or low < 0 or high > 65_535:
            raise ImageFault(
                f"has more than 16 bits per channel (mode {image.mode}, values from {low:g} to {high:g}), so the value "
                "of white is unknown; save it with 8 bits"
            )
        return Image.fromarray((values.astype(np.float64) / 257).round().astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:  # without its alpha channel a transparent pixel has any colour, mostly black
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
