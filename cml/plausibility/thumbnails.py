"""Small grey copies of a dataset's images, by which images are compared with each other."""

import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE = 16  # pixels
Thumbnail = NDArray[np.uint8]  # (SIDE, SIDE)


class Thumbnails:
    """Collects the thumbnails of images while they are decoded for another purpose; safe to use from threads.

    Attributes:
        of: The thumbnail of each image, (16, 16), by its path.
    """

    def __init__(self) -> None:
        self._taken: dict[Path, Thumbnail] = {}
        self._lock = threading.Lock()

    @property
    def of(self) -> Mapping[Path, Thumbnail]:
        """The thumbnail of each image by its path."""
        return self._taken

    def add(self, path: Path, picture: Image.Image) -> None:
        """Keep the thumbnail of an image.

        Args:
            path: The file of the image.
            picture: The image, decoded.
        """
        thumbnail = np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.BOX))
        with self._lock:
            self._taken[path] = thumbnail
