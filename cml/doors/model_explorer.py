"""The page on which the embedding of a ``Model`` is explored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from cml.data.encode_image import describe_shown_bands
from cml.items.labelled_items import Presentation

if TYPE_CHECKING:
    from cml.doors.trained_model import TrainedModel
    from cml.explore.explorer import Explorer


def explore(
    self: TrainedModel,
    inputs: Any,  # noqa: ANN401 - as cml.fit takes them
    labels: Any = None,  # noqa: ANN401
    path: Path | str = "explorer.html",
    *,
    names: Sequence[str] | None = None,
    pictures: Sequence[Image.Image | Path | str] | None = None,
    maps: Sequence[str] = (),
    image: str | None = None,
    label: str | None = None,
) -> Explorer:
    """Write a page to explore the embedding of any inputs; see docs/howto/explore.md.

    Args:
        inputs: N inputs, at least 4, of any kind that ``cml.fit`` takes.
        labels: A label for each of them; None where ``inputs`` holds them.
        path: Where to write the page.
        names: A name for each; their numbers by default.
        pictures: A picture of each, or its file. By default images are shown as the model gets them, and vectors as
            curves of their standardised numbers; other inputs as curves of their embeddings.
        maps: Maps of the embedding: pca, tsne, umap; pca and, if it is installed, tsne if there are none.
        image: Name of the column of images, where images come as a data frame.
        label: Name of its column of labels.

    Returns:
        The page; as the last line of a notebook's cell it is shown in place.

    Raises:
        UserError: Inputs and labels do not fit each other, the model or the label distance; there are fewer than 4
            inputs, or another number of names or pictures; a map is unknown or its package not installed.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> model = cml.fit(rows, rows[:, 0], steps=5, sampler="random(batch_size=30)", quiet=True)
        >>> print(model.explore(rows, rows[:, 0], "explorer.html", maps=["pca"]))
        explorer.html
    """
    from cml.explore.explore_items import ExploreOptions, explore_items
    from cml.explore.picture_grid import open_pictures

    items = self.label_items(inputs, labels, image=image, label=label, ids=names)
    shown = replace(Presentation.plain(items, items.distance, "item"), title=Path(path).stem)
    if pictures is None:
        shown = replace(shown, note=describe_shown_bands(self.form.channels))
    else:
        shown = replace(shown, pictures=open_pictures(pictures, len(items)))
    if names is None:
        items = replace(items, given_ids=[f"{number:06d}" for number in range(len(items))])
    options = ExploreOptions(beside=("oracle",), maps=tuple(maps))
    return explore_items({"embedding": self}, items, shown, Path(path), options)
