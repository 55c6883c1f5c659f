"""The part of an image that a captioning feature sees: all of it at its own size, or its centre."""

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from cml.data.images import Size, UInt8, read_image, resized

LEAST_SIDE = 32  # pixels: most networks halve an image five times


class View:
    """Decodes images.

    Args:
        kind: ``native`` for the whole image at its own size, ``crop`` for its centre.
        image_size: (height, width) of the crop.
        longest: Largest side of a native image in pixels; a larger one is scaled down.

    Attributes:
        scaled: Images that were scaled down or had a side stretched to 32 pixels.
    """

    def __init__(self, kind: Literal["native", "crop"], image_size: Size, longest: int) -> None:
        self._kind, self._image_size, self._longest = kind, image_size, longest
        self.scaled: set[Path] = set()

    def __call__(self, path: Path) -> UInt8:
        """Pixels (H, W, 3).

        Raises:
            DataError: the image cannot be read.
        """
        pixels = read_image(path)
        if self._kind == "crop":
            return _centre(pixels, self._image_size)
        height, width = pixels.shape[:2]
        scale = min(1.0, self._longest / max(height, width))
        size = max(LEAST_SIDE, round(height * scale)), max(LEAST_SIDE, round(width * scale))
        if size == (height, width):
            return pixels
        self.scaled.add(path)
        return np.asarray(resized(Image.fromarray(pixels), size))


def _centre(pixels: UInt8, size: Size) -> UInt8:
    """The largest centre box of the size's aspect, scaled to the size."""
    (height, width), (h, w) = pixels.shape[:2], size
    scale = min(height / h, width / w)
    across, down = scale * w, scale * h
    box = ((width - across) / 2, (height - down) / 2, (width + across) / 2, (height + down) / 2)
    return np.asarray(resized(Image.fromarray(pixels), size, box))
