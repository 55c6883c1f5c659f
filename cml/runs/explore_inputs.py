"""The explorer of inputs that are given in Python: any items with labels, by the embedding of a model."""

import functools
import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.array_types import Float32
from cml.data.band_picture import describe_shown_bands, draw_bands, read_picture
from cml.data.images import Images
from cml.data.input_sources import LabelledInputs
from cml.data.vectors import Vectors
from cml.distances.label_distance import LabelDistance
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.reporting.draw_vector import draw_vector
from cml.runs.explorer import Explorer

_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile


def explore_inputs(
    model: EmbeddingModel,
    known: LabelledInputs,
    distance: LabelDistance,
    path: Path,
    *,
    names: Sequence[str] | None = None,
    pictures: Sequence[Image.Image | Path | str] | None = None,
    maps: Sequence[str] = (),
) -> Explorer:
    """Write the explorer of inputs with labels; see ``cml.Model.explore``.

    Args:
        model: The model.
        known: N inputs with their labels.
        distance: The label distance.
        path: Where to write the page.
        names: N names; their numbers by default.
        pictures: N pictures or their files; None for drawings.
        maps: Maps of the embedding; pca and, if it is installed, tsne if there are none.

    Returns:
        The page.

    Raises:
        UserError: There are fewer than 4 inputs or another number of names or pictures, or a map cannot be drawn.
    """
    from cml.explore.label_columns import label_columns
    from cml.explore.label_side import build_label_side
    from cml.explore.maps import check_maps
    from cml.explore.page import Items, write_explorer
    from cml.explore.views import build_embedding_view, build_oracle_view

    count = len(known.labels)
    for option, values in (("names", names), ("pictures", pictures)):
        if values is not None and len(values) != count:
            raise UserError(f"'{option}' must be as many as the {count} inputs. Got {len(values)} instead.")
    chosen = check_maps(tuple(maps))
    side = build_label_side(distance, distance.encode(known.labels))
    embeddings = model.embed(known.inputs, bar="embed")
    drawn = _drawings(model, known, embeddings) if pictures is None else [_Shown(picture) for picture in pictures]
    items = Items(
        [f"{number:06d}" for number in range(count)] if names is None else list(map(str, names)),
        [describe_label(label) for label in known.labels],
        ["item"] * count,
        drawn,
        label_columns("label", known.labels, distance),
        note=describe_shown_bands(model.config.inputs.channels) if pictures is None else "",
    )
    views = [build_embedding_view("embedding", embeddings, side, chosen)]
    if side.is_known:
        views.append(build_oracle_view(side, chosen))
    write_explorer(path, items, side, views, title=path.stem, unit=distance.unit)
    return Explorer(path)


class _Shown:
    """A picture that was given, or the file of one."""

    def __init__(self, picture: Image.Image | Path | str) -> None:
        self._picture = picture

    def __call__(self) -> Image.Image:
        if isinstance(self._picture, Image.Image):
            return self._picture.convert("RGB")
        return read_picture(Path(self._picture))


def _drawings(model: EmbeddingModel, known: LabelledInputs, embeddings: Float32) -> list[Callable[[], Image.Image]]:
    """What each input is drawn by: its pixels, its numbers, or its embedding."""
    if known.kind == "images":
        images = Images(known.inputs, model.config.image_size, channels=model.config.inputs.channels)  # type: ignore[arg-type]
        return [functools.partial(_draw_pixels, images, item) for item in range(len(images))]
    rows: Float32 = embeddings
    if isinstance(known.inputs, Vectors):
        rows = np.asarray(model.standardize(known.inputs))
    else:
        rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-12)
    return [functools.partial(draw_vector, row, _SIDE) for row in rows]


def _draw_pixels(images: Images, item: int) -> Image.Image:
    (pixels,) = images.read(np.array([item]))
    return draw_bands(np.asarray(pixels).round().astype(np.uint8))


def describe_label(label: Any) -> str:  # noqa: ANN401 - a label of any form
    """Put a label that was given in Python in words."""
    try:
        return ", ".join(f"{number:.3g}" for number in np.ravel(np.asarray(label, np.float64))[:8].tolist())
    except (TypeError, ValueError):
        return label if isinstance(label, str) else reprlib.repr(label)
