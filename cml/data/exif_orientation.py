"""The EXIF orientation of photographs, which says how the camera was held: read and applied here alone."""

from PIL import Image, ImageOps

from cml.data.rgb import as_rgb
from cml.data.white_value import read_white

_ORIENTATION = 0x0112  # the EXIF tag
_UPRIGHT = 1
_LAST = 8  # the EXIF standard knows 1 to 8


def read_orientation(image: Image.Image) -> int:
    """Read the EXIF orientation of an image.

    Args:
        image: An opened image.

    Returns:
        1 to 8; 1, upright, where the tag is missing or holds anything else.
    """
    value = image.getexif().get(_ORIENTATION, _UPRIGHT)
    is_known = isinstance(value, int) and _UPRIGHT <= value <= _LAST
    return value if is_known else _UPRIGHT


def swaps_sides(image: Image.Image) -> bool:
    """Tell whether an image is turned by a quarter.

    Args:
        image: An opened image.

    Returns:
        Whether its width is the height of the upright image.
    """
    return read_orientation(image) >= 5


def is_upright(image: Image.Image) -> bool:
    """Tell whether an image need not be turned.

    Args:
        image: An opened image.

    Returns:
        Whether its EXIF orientation is the usual one, or missing.
    """
    return read_orientation(image) == _UPRIGHT


def turn_upright(image: Image.Image) -> Image.Image:
    """Turn an image upright by its EXIF orientation.

    Args:
        image: An opened image.

    Returns:
        The image, turned if its orientation is 2 to 8.
    """
    return image if is_upright(image) else ImageOps.exif_transpose(image)


def upright_rgb(image: Image.Image) -> Image.Image:
    """Decode an image to RGB and turn it upright by its EXIF orientation.

    Args:
        image: An opened image.

    Returns:
        The image in RGB, 8 bits per channel.

    Raises:
        ImageFault: it has more than 16 bits per channel, or values above the white that its file states.
    """
    white = read_white(image)  # before the orientation, for which Pillow decodes a PNG file
    if is_upright(image) and image.mode == "RGB" and not image.has_transparency_data:
        image.load()
        return image  # the usual case: no copy
    return as_rgb(turn_upright(image), white)
