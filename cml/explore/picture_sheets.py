"""Pictures of the explorer's items as tiles of a few large sheets, which a browser decodes quickly."""

import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from cml.array_types import Floating, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.reporting.drawing import flat

_SIDES = (224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # of a tile, in pixels
_SAMPLE = 36  # pictures whose sizes in bytes are measured
_SHEET = 1024  # pixels that a sheet's side has at most: a browser decodes it in some milliseconds


@dataclass(frozen=True)
class Sheets:
    """Pictures of N items, as tiles of some sheets."""

    width: int  # width of a tile in pixels
    height: int  # height of a tile in pixels
    across: int  # tiles in a row of a sheet
    down: int  # rows of a sheet
    files: Sequence[bytes]  # the sheets as WebP
    places: Int64  # (N,) number of each item's tile, counted through all sheets
    sizes: Int64  # (N, 2) width and height of each picture, in the upper left corner of its tile


def draw_sheets(
    pictures: Sequence[Callable[[], Image.Image]],
    order: Int64,  # (N,) items in the order of their tiles
    most_bytes: int,  # size of all sheets together in bytes, as estimated from a sample
) -> Sheets:
    """Draw pictures as large as a number of bytes allows for all sheets, 224 pixels at most; small ones stay small."""
    n = len(pictures)
    spread = np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).round().astype(int))
    sample = [flat(pictures[item]()) for item in spread]
    ratio = min(2.0, max(0.5, statistics.median(image.width / image.height for image in sample)))
    largest = max(max(image.size) for image in sample)
    for side in (side for side in _SIDES if side <= max(largest, _SIDES[-1])):  # a browser enlarges as well
        width, height = round(side * min(1.0, ratio)), round(side * min(1.0, 1 / ratio))
        sample_bytes = sum(len(_webp(_fit_to_tile(image, width, height))) for image in sample)
        if sample_bytes * n / len(sample) <= most_bytes:
            break
    across, down = max(1, _SHEET // width), max(1, _SHEET // height)
    places, sizes = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    files = []
    bar = ProgressBar(total=n, desc="pictures", unit="picture", delay=BAR_DELAY)
    for start in range(0, n, across * down):
        tiles = order[start : start + across * down]
        sheet = Image.new("RGB", (across * width, -(-len(tiles) // across) * height), "#808080")
        for tile, item in enumerate(tiles):
            picture = _fit_to_tile(flat(pictures[item]()), width, height)
            sheet.paste(picture, (tile % across * width, tile // across * height))
            places[item], sizes[item] = start + tile, picture.size
            bar.update()
        files.append(_webp(sheet))
    bar.close()
    return Sheets(width, height, across, down, files, places, sizes)


def curve_order(points: Floating) -> Int64:
    """Order items so that those near each other on a map (N, 2) stay near: along Morton's curve."""
    ranks = points.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")  # (N, 2)
    keys = np.zeros(len(points), np.int64)
    for bit in range(20):
        for axis in (0, 1):
            keys |= (ranks[:, axis] >> bit & 1) << (2 * bit + axis)
    return keys.argsort(kind="stable")


def _fit_to_tile(image: Image.Image, width: int, height: int) -> Image.Image:
    """Scale a picture to the largest size that fits into a tile, in its own proportions."""
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _webp(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=80, method=4)
    return file.getvalue()
