"""The EXIF orientation of photographs, which says how the camera was held: read and applied here alone."""

from PIL import Image, ImageOps

from cml.data.rgb import as_rgb
from cml.data.white_value import read_white

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
