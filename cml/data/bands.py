"""Images of another number of bands than three: every band as it is, and all 16 bits of it.

RGB images are read by ``cml.data.images``, with 8 bits, any other mode converted. For a backbone of one band (grey), of
two or four (RGBA, or any four bands of a TIFF), or for arrays of any other number, nothing is converted. Values are
float32 from 0 to 255: those of 16 bits are divided by 257, so that 65,535 is 255, and keep their fractions. TIFF files
of which Pillow would lose bits or bands are read by ``cml.data.deep_tiff``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import Float32, UInt8, UInt16
from cml.data.exif_orientation import turn_upright
from cml.data.image_fault import ImageFault
from cml.data.white_value import WHITE, fill_depth, read_white
from cml.errors import UserError

Bands = UInt8 | UInt16  # (H, W, C)
_PER_LEVEL = 257  # 65,535 / 255


def read_bands(
    image: Image.Image,
    channels: int,
    size: tuple[int, int],  # (height, width) in pixels to resize to, each band by itself
) -> Float32:  # the bands, (H, W, C) from 0 to 255
    """Read all bands of an image, upright."""
    return fit_bands(band_values(image), channels, size, f" (mode {image.mode})")


def band_values(image: Image.Image) -> Bands:  # (H, W, C) uint8 or uint16
    """The values of all bands of an image, upright."""
    white = read_white(image)
    image = turn_upright(image)
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode in ("P", "PA"):  # numbers of colours
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    values = np.asarray(image)
    if values.dtype not in (np.uint8, np.uint16):
        low, high = values.min(initial=0), values.max(initial=0)
        if values.dtype.kind == "f" or low < 0 or high > WHITE:
            raise ImageFault(
                f"has more than 16 bits per band (mode {image.mode}, values from {low:g} to {high:g}), so the value of "
                "white is unknown; save it with 16 bits"
            )
        values = values.astype(np.uint16)
    if white != WHITE:
        values = fill_depth(values, white)
    return values.reshape(*values.shape[:2], -1)


def fit_bands(
    values: Bands,  # (H, W, C) uint8 or uint16
    channels: int,
    size: tuple[int, int],  # (height, width) in pixels to resize to, each band by itself
    mode: str = "",
) -> Float32:  # the bands, (H, W, C) from 0 to 255
    """Check the number of bands, and resize them."""
    if values.shape[2] != channels:
        raise ImageFault(
            f"has {count_bands(values.shape[2])}{mode}, but the backbone takes {count_bands(channels)}, as its "
            "'channels' says"
        )
    return scale_bands(values, size)


def scale_bands(
    values: Bands,  # (H, W, C) uint8 or uint16
    size: tuple[int, int],  # (height, width) in pixels
) -> Float32:  # (H, W, C) of that size
    """Convert bands to levels from 0 to 255, and resize each by itself as RGB images are resized, without rounding."""
    levels: Float32 = values.astype(np.float32)
    if values.dtype == np.uint16:
        levels /= np.float32(_PER_LEVEL)
    if levels.shape[:2] == size:
        return levels
    resized = np.empty((*size, levels.shape[2]), np.float32)
    for band in range(levels.shape[2]):
        plane = Image.fromarray(np.ascontiguousarray(levels[..., band]))
        resized[..., band] = np.asarray(plane.resize((size[1], size[0]), Image.Resampling.BILINEAR))
    return resized


def count_bands(channels: int) -> str:
    """The number of bands in words."""
    return "1 band" if channels == 1 else f"{channels} bands"


def bands_last(
    images: NDArray[Any],  # of ``axes`` axes, with the bands last or first; of one band also without an axis for it
    axes: int,
    where: str,
    channels: int,
) -> NDArray[Any]:  # the pixels, uint8 or uint16; if both orders fit, they are unchanged
    """Bring arrays of pixels into the order (..., H, W, C)."""
    if images.dtype not in (np.uint8, np.uint16):
        raise UserError(f"{where} must be uint8 or uint16. Got {images.dtype} instead.")
    if channels == 1 and images.ndim == axes - 1:
        return images[..., None]
    if images.ndim != axes or channels not in (images.shape[-1], images.shape[-3]):
        before = "N, " if axes == 4 else ""
        raise UserError(
            f"{where} must have the shape ({before}H, W, {channels}) or ({before}{channels}, H, W), as the backbone "
            f"takes {count_bands(channels)}. Got {images.shape} instead."
        )
    return images if images.shape[-1] == channels else np.ascontiguousarray(np.moveaxis(images, -3, -1))
