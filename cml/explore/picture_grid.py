"""The pictures of the explorer: a grid of thumbnails, and drawings of items that are no images."""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageOps

from cml.array_types import Float32, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.data.encode_image import draw_bands, read_picture
from cml.data.images import Images
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.reporting.drawing import draw_vector, draw_words, flat
from cml.storage.atomic import atomic_file

MOST_CELLS = 6000  # the assignment takes the cube of it
_MOST_PIXELS = 30_000  # a side


def grid_size(text: str) -> tuple[int, int]:
    """Read columns and rows from a text like 60x40."""
    match = re.fullmatch(r"([1-9]\d{0,3})x([1-9]\d{0,3})", text)
    columns, rows = map(int, match.groups()) if match else (0, 0)
    if not 2 <= columns * rows <= MOST_CELLS:
        raise UserError(f"A grid is COLUMNSxROWS of 2 to {MOST_CELLS} cells, as in 60x40. Got {text!r} instead.")
    return columns, rows


def place_on_grid(
    points: NDArray[Any],  # map (N, 2) of the items, the y axis upwards
    columns: int,
    rows: int,  # rows of the grid; there are at least N cells
) -> Int64:  # number of each item's cell (N,), counted row by row from the upper left one
    """Assign every item of a map to a cell of a grid, with the least sum of squared distances (linear assignment)."""
    from scipy.optimize import linear_sum_assignment

    low, high = points.min(axis=0), points.max(axis=0)
    x, y = ((points - low) / np.maximum(high - low, 1e-30) * [columns, rows]).T  # (N,) each
    cells = np.arange(columns * rows)
    across = np.square(x[:, None] - (cells % columns + 0.5))
    down = np.square(rows - y[:, None] - (cells // columns + 0.5))
    return np.asarray(linear_sum_assignment((across + down).astype(np.float32))[1], np.int64)


def frame_colours(
    values: NDArray[Any],  # numbers (N,)
    period: float | None,  # their period, which makes the hues a circle; None if they have none
) -> list[tuple[int, int, int]]:  # red, green and blue of each, 0..255
    """Choose a colour for each number: viridis from the 1st to the 99th percentile, or a circle of hues."""
    from matplotlib import colormaps

    if period is not None:
        return [ImageColor.getrgb(f"hsl({360 * (value % period) / period:.1f},60%,55%)")[:3] for value in values]
    low, high = np.percentile(values, [1, 99])
    colours = colormaps["viridis"]((values - low) / max(high - low, 1e-30), bytes=True)  # (N, 4)
    return [(int(red), int(green), int(blue)) for red, green, blue, _ in colours]


def write_square(
    path: Path,
    pictures: Sequence[Callable[[], Image.Image]],
    cells: Int64,  # number of each item's cell (N,), as of ``place_on_grid``
    columns: int,
    rows: int,  # rows of the grid
    *,
    side: int = 48,  # side of a cell in pixels, its frame included
    # red, green and blue of each item's frame, 0..255; None for no frames
    frames: Sequence[tuple[int, int, int]] | None = None,
) -> None:
    """Write pictures on the cells of a grid as a PNG, each cut to a square."""
    most = _MOST_PIXELS // max(columns, rows)
    if not 4 <= side <= most:
        raise UserError(f"A cell of a {columns}x{rows} grid must be 4 to {most} pixels. Got {side}.")
    sheet = Image.new("RGB", (columns * side, rows * side), "white")
    border = max(2, side // 14) if frames is not None else 0
    for number, make in enumerate(ProgressBar(pictures, "square", unit="picture", delay=BAR_DELAY)):
        left, top = int(cells[number]) % columns * side, int(cells[number]) // columns * side
        if frames is not None:
            sheet.paste(frames[number], (left, top, left + side, top + side))
        inner = ImageOps.fit(flat(make()), (side - 2 * border, side - 2 * border), Image.Resampling.LANCZOS)
        sheet.paste(inner, (left + border, top + border))
    with atomic_file(path) as temporary:
        sheet.save(temporary, "PNG")


_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile

Draw = Callable[[], Image.Image]


def open_pictures(pictures: Sequence[Image.Image | Path | str], count: int) -> list[Draw]:
    """Take pictures that are given, or their files."""
    if len(pictures) != count:
        raise UserError(f"'pictures' must be as many as the {count} inputs. Got {len(pictures)} instead.")
    return [functools.partial(_show, picture) for picture in pictures]


def draw_items(model: Embedder, items: LabelledItems, embeddings: Float32) -> list[Draw]:
    """Draw each item: its pixels or words, a vector as a curve of standardised numbers, others by their embeddings."""
    if isinstance(items.inputs, Images):
        return [functools.partial(_draw_pixels, items.inputs, item) for item in range(len(items))]
    if isinstance(items.inputs, Texts):
        return [functools.partial(draw_words, text, _SIDE) for text in items.inputs.read(np.arange(len(items)))]
    if isinstance(items.inputs, Vectors):
        rows = np.asarray(model.embed_by_reference(items.inputs))
    else:
        rows = (embeddings - embeddings.mean(axis=0)) / np.maximum(embeddings.std(axis=0), 1e-12)
    return [functools.partial(draw_vector, row, _SIDE) for row in rows]


def _show(picture: Image.Image | Path | str) -> Image.Image:
    """A picture that was given, or the file of one."""
    return picture.convert("RGB") if isinstance(picture, Image.Image) else read_picture(Path(picture))


def _draw_pixels(images: Images, item: int) -> Image.Image:
    (pixels,) = images.read(np.array([item]))
    return draw_bands(np.asarray(pixels).round().astype(np.uint8))
