"""Small grey copies of a dataset's images, by which images are compared with each other."""

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 16  # pixels
LEAST_CONTRAST = 4.0  # standard deviation of a thumbnail's levels; below, an image is almost one colour
Thumbnail = NDArray[np.uint8]  # (SIDE, SIDE)


class Thumbnails:
    """Collects the thumbnails of images while they are decoded for another purpose; safe to use from threads.

    Attributes:
        of: The thumbnail of each image, (16, 16), by its path.
        brightest: The greatest level of each image, 0 to 255, by its path.
    """

    def __init__(self) -> None:
        self._taken: dict[Path, Thumbnail] = {}
        self._brightest: dict[Path, int] = {}
        self._lock = threading.Lock()

    @property
    def of(self) -> Mapping[Path, Thumbnail]:
        """The thumbnail of each image by its path."""
        return self._taken

    @property
    def brightest(self) -> Mapping[Path, int]:
        """The greatest level of each image by its path."""
        return self._brightest

    def add(self, path: Path, picture: Image.Image) -> None:
        """Keep the thumbnail of an image.

        Args:
            path: The file of the image.
            picture: The image, decoded.
        """
        grey = picture.convert("L")
        thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
        brightest = int(np.asarray(grey).max())
        with self._lock:
            self._taken[path] = thumbnail
            self._brightest[path] = brightest
