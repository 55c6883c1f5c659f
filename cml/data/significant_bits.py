"""The chunk sBIT of a PNG file: how many bits of a value are significant."""

import struct

import numpy as np
from PIL import Image

from cml.array_types import Integer

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
