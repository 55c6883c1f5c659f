"""What of an image a captioning feature sees: the whole image at its own size, or its centre."""

from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from cml.array_types import UInt8
from cml.data.images import Size, read_image, resize_image

LEAST_SIDE = 32  # pixels: most networks halve an image five times


class CaptioningView:
    """Decodes the part of an image that a feature sees."""

    def __init__(self, kind: Literal["native", "crop"], image_size: Size, longest: int) -> None:
        self._kind, self._image_size, self._longest = kind, image_size, longest
        self.scaled: set[Path] = set()  # images that were scaled down or had a side stretched to 32 pixels

    def __call__(self, path: Path) -> UInt8:
        """Decode an image to pixels (H, W, 3)."""
        pixels = read_image(path)
        height, width = pixels.shape[:2]
        if self._kind == "crop":  # the largest centre box of the size's aspect
            h, w = self._image_size
            across, down = (min(height / h, width / w) * side for side in (w, h))
            box = ((width - across) / 2, (height - down) / 2, (width + across) / 2, (height + down) / 2)
            return np.asarray(resize_image(Image.fromarray(pixels), self._image_size, box))
        scale = min(1.0, self._longest / max(height, width))
        size = max(LEAST_SIDE, round(height * scale)), max(LEAST_SIDE, round(width * scale))
        if size == (height, width):
            return pixels
        self.scaled.add(path)
        return np.asarray(resize_image(Image.fromarray(pixels), size))
