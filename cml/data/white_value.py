"""The value of white in images with 16 bits per value, since cameras may fill 10 or 12 of the bits only."""

import struct

import numpy as np
from PIL import Image, ImageFile

from cml.array_types import Integer, UInt16
from cml.data.image_fault import ImageFault

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
