"""Images of 16 bits that use 10 or 12 of them, scaled to all 16 when a dataset is prepared."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from cml.data.bands import ImageFault, fill_depth, loses_bits, turn_upright
from cml.data.encode_image import image_file_content
from cml.data.open_image import is_deep_tiff, open_image, read_deep_tiff
from cml.errors import DataError, UserError


def check_bits(bits: int | None) -> None:  # bits: the number; None for all
    """Check the number of bits that images use."""
    if bits is not None and not 8 <= bits <= 16:
        raise UserError(f"The bits of images should be from 8 to 16. Got {bits} instead.")


def scale_depth(photo: Path | bytes, bits: int) -> Path | bytes:
    """Scale the values of an image that has 16 bits per value, but uses only some of them."""
    white = (1 << bits) - 1
    try:
        if is_deep_tiff(photo):
            values = read_deep_tiff(photo)
            return photo if values.dtype != np.uint16 else _tiff_content(fill_depth(values, white))
        with open_image(photo) as image:
            if loses_bits(image):
                raise ImageFault("has several bands of 16 bits, which a PNG cannot be scaled in; save it as TIFF")
            if not image.mode.startswith("I"):
                return photo
            upright = fill_depth(np.asarray(turn_upright(image)), white)
        return image_file_content(Image.fromarray(upright), "PNG")
    except ImageFault as fault:
        name = f"The image {photo}" if isinstance(photo, Path) else "The image"
        raise DataError(f"{name} {fault}.") from None


def _tiff_content(values: np.ndarray) -> bytes:
    import tifffile

    content = io.BytesIO()
    kind = "rgb" if values.shape[2] == 3 else "minisblack"
    tifffile.imwrite(content, values, photometric=kind, planarconfig="contig")
    return content.getvalue()
