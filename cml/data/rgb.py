"""Conversion of images of any mode to RGB."""

import numpy as np
from PIL import Image

from cml.data.image_fault import ImageFault
from cml.data.white_value import WHITE, fill_depth


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
