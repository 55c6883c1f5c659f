"""Small grey copies of a dataset's images, by which images are compared with each other."""

import functools
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from cml.array_types import UInt8

SIDE = 16  # pixels
_LEAST_CONTRAST = 4.0  # standard deviation of a thumbnail's levels; below, an image is almost one colour
_BLOCK = 4096  # thumbnails at a time
Thumbnail = UInt8  # (SIDE, SIDE)


class Thumbnails:
    """Collects the thumbnails of images while they are decoded for another purpose; safe to use from threads.

    ``of``: the thumbnail of each image, (16, 16), by its path.

    ``contrasted``: those of images that are more than almost one colour.

    ``brightest``: the greatest level of each image, 0 to 255, by its path.
    """

    def __init__(self) -> None:
        self._taken: dict[Path, Thumbnail] = {}
        self._brightest: dict[Path, int] = {}
        self._lock = threading.Lock()

    @property
    def of(self) -> Mapping[Path, Thumbnail]:
        """The thumbnail of each image by its path."""
        return self._taken

    @functools.cached_property
    def contrasted(self) -> Mapping[Path, Thumbnail]:
        """Those of images that are more than almost one colour; asked for when all are collected."""
        paths, taken = list(self._taken), list(self._taken.values())
        kept: dict[Path, Thumbnail] = {}
        for start in range(0, len(paths), _BLOCK):
            levels = np.stack(taken[start : start + _BLOCK]).astype(np.float32)
            for row in np.flatnonzero(levels.std(axis=(1, 2)) >= _LEAST_CONTRAST).tolist():
                kept[paths[start + row]] = taken[start + row]
        return kept

    @property
    def brightest(self) -> Mapping[Path, int]:
        """The greatest level of each image by its path."""
        return self._brightest

    def add(self, path: Path, picture: Image.Image) -> None:
        """Keep the thumbnail of an image."""
        grey = picture.convert("L")
        thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
        brightest = int(np.asarray(grey).max())
        with self._lock:
            self._taken[path] = thumbnail
            self._brightest[path] = brightest
