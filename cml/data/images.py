"""Reading images at one stored size, by one decoder and resizer; kept in memory if they fit, else decoded on demand."""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import Float32, Int64, Integer, UInt8
from cml.data.bands import ImageFault, fit_bands, read_bands, scale_bands, swaps_sides, upright_rgb
from cml.data.dataset_items import Lazy
from cml.data.fast_decoding import read_fast, resize_fast
from cml.data.input_form import InputForm
from cml.data.open_image import is_deep_tiff, open_image, open_named_image, read_deep_tiff, read_upright
from cml.errors import DataError, UserError
from cml.processes.cores import CORES
from cml.processes.exactness import Decode

Pixels = UInt8 | Float32
Size = tuple[int, int]  # (height, width) in pixels
_PIECE = 256  # images that a thread decodes at a time, if there are many
PIXELS = 2  # version of the pixels that a file becomes, part of the keys of caches
RESIZING = (
    "Bilinear with antialiasing, the aspect not kept: first the width, then the height, each rounded to whole numbers. "
    "Where a side is scale times as long as wanted, its pixel i is the mean of the pixels x with the weights "
    "max(0, 1 - |x + 0.5 - (i + 0.5) * scale| / max(1, scale))."
)


def read_image(
    path: Path | bytes,
    # (height, width) in pixels to resize to, by ``resize_image``; by default, that of the file
    size: Size | None = None,
    # ``fast`` decodes JPEGs at a smaller scale, whose pixels differ from those of images that were already decoded
    decode: Decode = "exact",
) -> UInt8:  # the pixels, (H, W, 3) uint8
    """Read an image file as RGB, upright."""
    if decode == "fast" and size is not None:
        with open_named_image(path) as image:
            return read_fast(image, size)
    upright = read_upright(path)
    return np.asarray(upright if size is None else resize_image(upright, size))


def read_pixels(
    path: Path,
    channels: int,  # C. Three are RGB; for any other number see ``cml.data.bands``
    size: Size,  # (height, width) in pixels to resize to
    decode: Decode = "exact",  # of three channels; others are always read exactly
) -> Pixels:  # the pixels, (H, W, 3) uint8, or for another C (H, W, C) float32 from 0 to 255
    """Read an image file as a backbone takes it, upright."""
    if channels == 3:
        return read_image(path, size, decode)
    if is_deep_tiff(path):
        try:
            return fit_bands(read_deep_tiff(path), channels, size)
        except ImageFault as fault:
            raise DataError(f"The image {path} {fault}.") from None
    with open_named_image(path) as image:
        return read_bands(image, channels, size)


def resize_image(
    image: Image.Image,  # an RGB image
    size: Size,  # (height, width) in pixels
    # the part of the image to resize, (left, top, right, bottom) in pixels; by default, all of it
    box: tuple[float, float, float, float] | None = None,
) -> Image.Image:
    """Resize an image as ``RESIZING`` says."""
    return image.resize((size[1], size[0]), Image.Resampling.BILINEAR, box=box)


class Images:
    """N images of one stored size, decoded on demand, or once if they fit into memory."""

    def __init__(
        self,
        # N paths, contents of image files, Pillow images or arrays (H, W, 3) of uint8, or one array (N, H, W, 3) of
        # uint8. Of another number of channels arrays may also be uint16
        source: Sequence[Path | bytes | Image.Image | UInt8] | UInt8,
        size: Size,  # (height, width) in pixels to which all are resized
        *,
        channels: int = 3,  # C. Three are RGB; for any other number see ``cml.data.bands``
        cache_bytes: int = 1 << 30,  # the most memory, in bytes, that ``load`` may take
        decode: Decode = "exact",  # of three channels
    ) -> None:
        if isinstance(source, np.ndarray):
            deep = channels != 3 and source.dtype == np.uint16
            if source.ndim != 4 or source.shape[3] != channels or not (deep or source.dtype == np.uint8):
                raise UserError(
                    f"The 'images' must be an array (N, H, W, {channels}) of uint8. "
                    f"Got {source.shape}, {source.dtype} instead."
                )
        self.size, self.channels, self.decode, self._cache_bytes = size, channels, decode, cache_bytes
        self._source: Any = source
        self._cache: Pixels | None = None
        if isinstance(source, np.ndarray) and source.shape[1:3] == size and channels == 3:
            self._cache = source

    @classmethod
    def from_pixels(
        cls,
        pixels: NDArray[Any],  # (N, H, W, C), uint8 of three channels, else float32 from 0 to 255
    ) -> "Images":
        """Take images whose pixels ``read`` gave before."""
        images = cls([], (pixels.shape[1], pixels.shape[2]), channels=pixels.shape[3])
        images._source = images._cache = pixels
        return images

    def __len__(self) -> int:
        return len(self._source)

    @property
    def form(self) -> InputForm:
        """The form of images."""
        return InputForm(channels=self.channels)

    @property
    def source(self) -> Any:  # noqa: ANN401 - see the class
        """The images as they were given, of any size."""
        return self._source

    def at(self, size: Size, cache_bytes: int | None = None) -> "Images":
        """Take the same images at another size, at which they are decoded anew."""
        most = self._cache_bytes if cache_bytes is None else cache_bytes
        return Images(self._source, size, channels=self.channels, cache_bytes=most, decode=self.decode)

    @property
    def paths(self) -> Sequence[Path] | None:
        """The N files; None if some images are not files."""
        is_files = not isinstance(self._source, np.ndarray) and all(isinstance(image, Path) for image in self._source)
        return self._source if is_files else None

    def subset(self, items: slice | Int64) -> "Images":
        """Take a part of the images; a slice shares the memory of decoded ones."""
        if isinstance(items, slice) or isinstance(self._source, np.ndarray):
            source = self._source[items]
        else:
            source = Lazy(self._source, items.tolist(), _keep_image, reads_anew=self.reads_anew)
        part = Images(source, self.size, channels=self.channels, cache_bytes=self._cache_bytes, decode=self.decode)
        part._cache = None if self._cache is None else self._cache[items]
        return part

    @property
    def reads_anew(self) -> bool:
        """Whether they come from a data set of the user's own, so that random augmentation must not be kept."""
        return isinstance(self._source, Lazy) and self._source.reads_anew

    def load(self) -> None:
        """Decode all images now if they fit into memory, unless each read may give others."""
        needed = len(self) * math.prod(self.size) * self.channels * self._dtype.itemsize
        if self._cache is None and not self.reads_anew and needed <= self._cache_bytes:
            self._cache = self._decode(np.arange(len(self)))

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.channels == 3 else np.float32)

    def read(
        self,
        items: Integer,  # their positions, (B,)
    ) -> Pixels:  # the pixels, (B, H, W, 3) uint8 of the stored size; (B, H, W, C) float32 from 0 to 255 for another C
        """Read some images."""
        return self._cache[items] if self._cache is not None else self._decode(items)

    def _decode(self, items: Integer) -> Pixels:
        images = np.empty((len(items), *self.size, self.channels), self._dtype)
        if self.reads_anew:  # in one thread: the user's data set may draw random numbers, or not bear several
            for row, item in enumerate(items):
                images[row] = self._decode_one(item)
            return images

        def decode(start: int) -> None:
            for row in range(start, min(start + piece, len(items))):
                images[row] = self._decode_one(items[row])

        # Pillow decodes and resizes outside the interpreter lock. Handing out small images one by one would take longer
        # than decoding them
        piece = min(_PIECE, 1 + len(items) // 16)
        with ThreadPoolExecutor(CORES) as pool:
            for _ in pool.map(decode, range(0, len(items), piece)):
                pass
        return images

    def _decode_one(self, item: int) -> Pixels:
        if self.channels != 3:
            return self._decode_bands(item)
        if isinstance(entry := self._source[item], Path):
            return read_image(entry, self.size, self.decode)
        try:
            if isinstance(entry, bytes):
                with open_image(entry) as opened:
                    if self.decode == "fast":
                        return read_fast(opened, self.size)
                    image = upright_rgb(opened)
            else:
                image = Image.fromarray(entry) if isinstance(entry, np.ndarray) else upright_rgb(entry)
        except ImageFault as fault:
            raise DataError(f"The image number {item} {fault}.") from None
        if self.decode == "fast":
            return resize_fast(np.array(image), self.size)
        return np.asarray(resize_image(image, self.size))

    def _decode_bands(self, item: int) -> Pixels:
        entry = self._source[item]
        if isinstance(entry, np.ndarray):
            return scale_bands(entry, self.size)
        try:
            if isinstance(entry, Path):
                return read_pixels(entry, self.channels, self.size)
            if isinstance(entry, bytes):
                return _read_content(entry, self.channels, self.size)
            return read_bands(entry, self.channels, self.size)
        except ImageFault as fault:
            raise DataError(f"The image number {item} {fault}.") from None


def _read_content(content: bytes, channels: int, size: Size) -> Pixels:
    """The bands of an image file's content; ``ImageFault`` if it cannot be read."""
    if is_deep_tiff(content):
        return fit_bands(read_deep_tiff(content), channels, size)
    with open_image(content) as image:
        return read_bands(image, channels, size)


def _keep_image(image: Any, item: int) -> Any:  # noqa: ANN401
    """The image; a function with a name, as data workers may be sent it."""
    return image


def stored_size(
    image_size: Size,  # the (height, width) of the centre box in pixels
    crop: float,  # the fraction of each side that the centre box covers
) -> Size:  # (height, width) in pixels
    """Compute the size at which images are stored, of which the network sees the centre box."""
    return round(image_size[0] / crop), round(image_size[1] / crop)


def native_size(path: Path | bytes) -> Size:  # (height, width) in pixels of the upright image
    """Read the size of an image file from its header."""
    with open_named_image(path) as image:
        return (image.width, image.height) if swaps_sides(image) else (image.height, image.width)
