"""The pixels of images of any mode: bands as they are, RGB, the value of white, and the orientation of photographs.

RGB images are read by ``cml.data.images``, with 8 bits, any other mode converted. For a backbone of one band (grey), of
two or four (RGBA, or any four bands of a TIFF), or for arrays of any other number, nothing is converted. Values are
float32 from 0 to 255: those of 16 bits are divided by 257, so that 65,535 is 255, and keep their fractions. TIFF files
of which Pillow would lose bits or bands are read by ``cml.data.open_image``.
"""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps

from cml.array_types import Float32, Integer, UInt8, UInt16
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


# The chunk sBIT of a PNG file: how many bits of a value are significant.

_FIRST_CHUNK = 8  # bytes of a PNG file before it
_CHECKSUM = 4  # bytes after the content of a chunk


def read_significant_bits(
    image: Image.Image,
) -> int | None:  # the number, 1 to 15; None if the file does not say it, says all, or is of another kind
    """Read how many bits of a grey PNG file with 16 bits per value are significant."""
    file = getattr(image, "fp", None)
    if image.format != "PNG" or image.mode != "I;16" or file is None:
        return None
    place = file.tell()
    try:
        file.seek(_FIRST_CHUNK)
        while len(head := file.read(8)) == 8:
            length, kind = struct.unpack(">I4s", head)
            if kind == b"IDAT":
                return None
            if kind == b"sBIT":
                bits = file.read(1) if length == 1 else b""
                return bits[0] if bits and 0 < bits[0] < 16 else None
            file.seek(length + _CHECKSUM, 1)
        return None
    finally:
        file.seek(place)


def uses_lower_bits(
    values: Integer,  # values of an image from 0 to 65,535
    bits: int,  # the number of significant bits, as ``read_significant_bits`` returns it
) -> bool:
    """Tell whether values were left in the lower bits, where the PNG specification has them scaled to all 16.

    Scaled values are multiples of a step of 2^(16 - bits), or 1 beside one where a writer has rounded or repeated bits.
    """
    step = 1 << (16 - bits)
    rest = np.asarray(values) % step
    return int(values.max(initial=0)) < 1 << bits and bool((np.minimum(rest, step - rest) > 1).any())


WHITE = 65_535  # of 16 bits, where a file says nothing else
_BITS, _GREATEST = 258, 281  # TIFF tags: the bits of a value, and the greatest one in use
_WHITES = frozenset((1 << bits) - 1 for bits in range(9, 17))


def read_white(image: Image.Image) -> int:
    """Read which value is white in an image of one band with 16 bits.

    A TIFF file may say that it uses fewer bits, by its tags BitsPerSample or MaxSampleValue. The latter counts only if
    it is 1023, 4095 or the like: other values are the greatest one of the picture, which differ between pictures.
    A PNG file may say it by its chunk sBIT, but white is then 65,535 all the same where values are scaled as the
    specification of PNG asks; only values that were left in the lower bits have another white.
    """
    if significant := read_significant_bits(image):
        return (1 << significant) - 1 if uses_lower_bits(np.asarray(image), significant) else WHITE
    tags = getattr(image, "tag_v2", None)
    if tags is None or not image.mode.startswith("I;16"):
        return WHITE
    bits, greatest = tags.get(_BITS, (16,)), tags.get(_GREATEST, WHITE)
    if isinstance(bits, tuple) and len(bits) == 1 and 8 < bits[0] < 16:
        return (1 << int(bits[0])) - 1
    greatest = greatest[0] if isinstance(greatest, tuple) and greatest else greatest
    return int(greatest) if greatest in _WHITES else WHITE


def has_16_bits(image: Image.Image) -> bool:
    """Tell whether an image file has 16 bits per value."""
    return image.mode.startswith("I") or ";16" in _stored_form(image)


def loses_bits(image: Image.Image) -> bool:
    """Tell whether Pillow reads only the upper 8 of 16 bits, as it does in images of several bands."""
    return ";16" in _stored_form(image) and not image.mode.startswith("I")


def _stored_form(image: Image.Image) -> str:
    """What Pillow calls the form of the values in an opened file, such as "RGB;16B"."""
    arguments = image.tile[0][3] if isinstance(image, ImageFile.ImageFile) and image.tile else ""
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first if isinstance(first, str) else ""


def fill_depth(values: Integer, white: int) -> UInt16:
    """Scale values that use the lower bits alone to all 16 bits."""
    for value in (int(values.max(initial=0)), int(values.min(initial=0))):
        if not 0 <= value <= white:
            raise ImageFault(f"should hold values up to {white}, but holds {value}")
    return (values * (WHITE / white)).round().astype(np.uint16)


def as_rgb(image: Image.Image, white: int = WHITE) -> Image.Image:  # the image in RGB
    """Convert an image to RGB, 8 bits per channel; transparent parts become white."""
    if image.mode.startswith(("I", "F")):  # Pillow's own conversion would clip at 255
        values = np.asarray(image)
        low, high = values.min(initial=0), values.max(initial=0)
        if image.mode == "F" or low < 0 or high > WHITE:
            raise ImageFault(
                f"has more than 16 bits per channel (mode {image.mode}, values from {low:g} to {high:g}), so the value "
                "of white is unknown; save it with 8 bits"
            )
        if white != WHITE:
            values = fill_depth(values, white)
        return Image.fromarray((values.astype(np.float64) / 257).round().astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:  # without its alpha channel a transparent pixel has any colour, mostly black
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = 1
_LAST = 8  # the EXIF standard knows 1 to 8


def read_orientation(image: Image.Image) -> int:  # 1 to 8; 1, upright, where the tag is missing or holds anything else
    """Read the EXIF orientation of an image."""
    value = image.getexif().get(_ORIENTATION, _UPRIGHT)
    is_known = isinstance(value, int) and _UPRIGHT <= value <= _LAST
    return value if is_known else _UPRIGHT


def swaps_sides(image: Image.Image) -> bool:
    """Tell whether an image is turned by a quarter."""
    return read_orientation(image) >= 5


def is_upright(image: Image.Image) -> bool:
    """Tell whether an image need not be turned."""
    return read_orientation(image) == _UPRIGHT


def turn_upright(image: Image.Image) -> Image.Image:
    """Turn an image upright by its EXIF orientation."""
    return image if is_upright(image) else ImageOps.exif_transpose(image)


def upright_rgb(image: Image.Image) -> Image.Image:  # the image in RGB, 8 bits per channel
    """Decode an image to RGB and turn it upright by its EXIF orientation."""
    white = read_white(image)  # before the orientation, for which Pillow decodes a PNG file
    if is_upright(image) and image.mode == "RGB" and not image.has_transparency_data:
        image.load()
        return image  # the usual case: no copy
    return as_rgb(turn_upright(image), white)


class ImageFault(ValueError):
    """What is wrong with an image file, to follow its name: "cannot be read: ...", without a full stop."""
