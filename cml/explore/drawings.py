"""What items given in Python are drawn by: their pixels, their numbers, their embeddings, or given pictures."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from cml.array_types import Float32
from cml.data.encode_image import draw_bands, read_picture
from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.reporting.draw_vector import draw_vector

_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile

Draw = Callable[[], Image.Image]


def open_pictures(pictures: Sequence[Image.Image | Path | str], count: int) -> list[Draw]:
    """Take pictures that are given, or their files."""
    if len(pictures) != count:
        raise UserError(f"'pictures' must be as many as the {count} inputs. Got {len(pictures)} instead.")
    return [functools.partial(_show, picture) for picture in pictures]


def draw_items(model: Embedder, items: LabelledItems, embeddings: Float32) -> list[Draw]:
    """Draw each item by its pixels, a vector as a curve of its standardised numbers, others by their embeddings."""
    if isinstance(items.inputs, Images):
        return [functools.partial(_draw_pixels, items.inputs, item) for item in range(len(items))]
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
