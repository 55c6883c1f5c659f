"""Small pictures of many items in sheets of tiles, WebP."""

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.processes.bar import SILENT, Bar
from cml.reporting.drawing import flat

_SIDES = (224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # of a tile, in pixels
_SAMPLE = 36  # pictures that tell how many bytes one takes
_SHEET = 1024  # pixels that a sheet's side has at most: a browser decodes it in some milliseconds
_QUALITY = 80


@dataclass(frozen=True)
class Sheets:
    """Pictures of N items."""

    width: int  # of a tile
    height: int
    across: int  # tiles in a row of a sheet
    down: int  # rows of a sheet
    files: Sequence[bytes]  # the sheets as WebP
    places: NDArray[np.int64]  # (N,) number of each item's tile, counted through all sheets
    sizes: NDArray[np.int64]  # (N, 2) width and height of each picture, in the upper left corner of its tile


def make_sheets(pictures: Sequence[Callable[[], Image.Image]], order: NDArray[np.int64], most_bytes: int) -> Sheets:
    """Draw the pictures, as large as ``most_bytes`` allow for all sheets together, 224 pixels at most.

    ``order`` are the items in the order of their tiles: neighbours in it share a sheet.
    """
    n = len(pictures)
    spread = np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).round().astype(int))
    sample = [flat(pictures[item]()) for item in spread]
    ratio = min(2.0, max(0.5, statistics.median(image.width / image.height for image in sample)))
    for side in _SIDES:
        width, height = round(side * min(1.0, ratio)), round(side * min(1.0, 1 / ratio))
        if sum(len(_webp(_fitted(image, width, height))) for image in sample) * n / len(sample) <= most_bytes:
            break
    across, down = max(1, _SHEET // width), max(1, _SHEET // height)
    places, sizes = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    files = []
    bar = Bar(total=n, desc="pictures", unit="picture", delay=SILENT)
    for start in range(0, n, across * down):
        tiles = order[start : start + across * down]
        sheet = Image.new("RGB", (across * width, -(-len(tiles) // across) * height), "#808080")
        for tile, item in enumerate(tiles):
            picture = _fitted(flat(pictures[item]()), width, height)
            sheet.paste(picture, (tile % across * width, tile // across * height))
            places[item], sizes[item] = start + tile, picture.size
            bar.update()
        files.append(_webp(sheet))
    bar.close()
    return Sheets(width, height, across, down, files, places, sizes)


def along_a_curve(points: NDArray[np.floating]) -> NDArray[np.int64]:
    """Items in an order in which those near each other on a map (N, 2) stay near: along Morton's curve."""
    ranks = points.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")  # (N, 2)
    keys = np.zeros(len(points), np.int64)
    for bit in range(20):
        for axis in (0, 1):
            keys |= (ranks[:, axis] >> bit & 1) << (2 * bit + axis)
    return keys.argsort(kind="stable")


def _fitted(image: Image.Image, width: int, height: int) -> Image.Image:
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _webp(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=_QUALITY, method=4)
    return file.getvalue()
