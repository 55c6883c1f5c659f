"""The EXIF orientation of photographs, which says how the camera was held."""

from PIL import Image, ImageOps

from cml.data.rgb import as_rgb

_ORIENTATION = 0x0112  # the EXIF tag


def _orientation(image: Image.Image) -> int:
    return int(image.getexif().get(_ORIENTATION, 1))


def swaps_sides(image: Image.Image) -> bool:
    """Tell whether an image is turned by a quarter.

    Args:
        image: An opened image.

    Returns:
        Whether its width is the height of the upright image.
    """
    return _orientation(image) >= 5


def is_upright(image: Image.Image) -> bool:
    """Tell whether an image need not be turned.

    Args:
        image: An opened image.

    Returns:
        Whether its EXIF orientation is the usual one, or missing.
    """
    return _orientation(image) == 1


def upright_rgb(image: Image.Image) -> Image.Image:
    """Decode an image to RGB and turn it upright by its EXIF orientation.

    Args:
        image: An opened image.

    Returns:
        The image in RGB, 8 bits per channel.

    Raises:
        ImageFault: it has more than 16 bits per channel.
    """
    if is_upright(image) and image.mode == "RGB" and not image.has_transparency_data:
        image.load()
        return image  # the usual case: no copy
    return as_rgb(ImageOps.exif_transpose(image))
