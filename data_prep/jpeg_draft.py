"""Draft decoding of JPEGs: a large photograph is decoded at 1/2, 1/4 or 1/8 of its size, which saves much time."""

from PIL import ImageFile

from cml.data.exif_orientation import is_upright

_REDUCTIONS = (8, 4, 2)  # that libjpeg offers below the full size


def draft_decode(
    image: ImageFile.ImageFile,
    side: float,  # side of the square to crop, in pixels of the photograph
    size: int,  # side of the crop after resizing, in pixels. The square is decoded at twice this size at least
) -> int:  # the reduction, 1, 2, 4 or 8: pixels of the photograph per pixel of the decoded image
    """Ask Pillow to decode a JPEG smaller, if a crop of it will be shrunk by far more; other formats are unchanged."""
    width, height = image.size
    reduction = next((times for times in _REDUCTIONS if side >= 2 * size * times), 1)
    # A side that is not a multiple of the reduction is rounded up at its end, which is its beginning once the
    # photograph is turned upright.
    if is_upright(image) or (width % reduction, height % reduction) == (0, 0):
        image.draft("RGB", (max(width // reduction, 1), max(height // reduction, 1)))
    return round(width / image.width)  # exact for a JPEG, whose blocks of 8 pixels became smaller blocks; else 1
