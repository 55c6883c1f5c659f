"""The explorer of any items: by label, and by each model's embedding; and their square, pictures on a grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.errors import UserError
from cml.explore.explorer import Explorer
from cml.explore.picture_grid import draw_items
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder, Presentation
from cml.option_types import check_options

EXPLORER, SQUARE = "explorer.html", "square.png"
BESIDE = ("frozen", "oracle")


@dataclass(frozen=True)
class ExploreOptions:
    """What the explorer shows."""

    beside: Sequence[str] = BESIDE  # further tabs: features of a frozen ImageNet network, and the labels
    splits: Sequence[str] = ()  # train, query, gallery; all if there are none
    maps: Sequence[str] = ()  # pca, tsne, umap; pca and, if it is installed, tsne if there are none
    count: int = 10_000  # at most, a random subset
    seed: int = 0  # of the subset, the pairs and the maps

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        unknown = sorted(set(self.beside) - set(BESIDE))
        if unknown:
            raise UserError(f"'beside' must be among {', '.join(BESIDE)}. Got {unknown[0]!r} instead.")


def explore_items(
    models: Mapping[str, Embedder],  # by the titles of their tabs; what is frozen is that of the first
    items: LabelledItems,
    shown: Presentation,
    path: Path,
    options: ExploreOptions,
) -> Explorer:
    """Write the page of items."""
    from cml.explore.label_side import build_label_side
    from cml.explore.maps import check_maps
    from cml.explore.page import Items, write_explorer
    from cml.explore.views import build_embedding_view, build_oracle_view
    from cml.items.shown_columns import label_columns

    options = check_options(options)
    maps, seed, first = check_maps(tuple(options.maps)), options.seed, next(iter(models.values()))
    held_out = np.array(shown.roles) != "train"
    side = build_label_side(items.distance, items.labels, held_out=held_out, seed=seed)
    embeddings = {title: model.embed(items.inputs, bar="embed") for title, model in models.items()}
    views = [
        build_embedding_view(title, embeddings[title], side, maps, stages=model.embed_stages(items.inputs), seed=seed)
        for title, model in models.items()
    ]
    if "frozen" in options.beside and (title := first.reference_name):
        views.append(build_embedding_view(title, first.embed_by_reference(items.inputs), side, maps, seed=seed))
    if "oracle" in options.beside and side.is_known:
        views.append(build_oracle_view(side, maps, seed=seed))
    page = Items(
        items.ids,
        shown.words,
        shown.roles,
        shown.pictures or draw_items(first, items, next(iter(embeddings.values()))),
        label_columns("label", items.read_given_labels(np.arange(len(items))), items.distance)
        if shown.colours is None
        else shown.colours,
        shown.legend,
        shown.note,
        shown.columns,
        shown.texts,
        shown.are_known,
    )
    write_explorer(path, page, side, views, title=shown.title, unit=shown.unit, factor=shown.factor)
    return Explorer(path)


def write_items_square(
    model: Embedder,
    items: LabelledItems,
    shown: Presentation,
    path: Path,
    grid: tuple[int, int],
    *,
    map_name: str = "tsne",
    side: int = 48,
) -> Path:
    """Write a grid of pictures as a PNG, each near its place on a map; a number as label colours the frame."""
    from cml.explore.maps import MAPS, check_maps
    from cml.explore.picture_grid import frame_colours, place_on_grid, write_square

    check_maps((map_name,))
    columns, rows = grid
    cells = place_on_grid(MAPS[map_name].draw(model.embed(items.inputs), 0), columns, rows)
    numbers = [column for column in (shown.colours or {}).values() if column[0].dtype.kind == "f"]
    frames = frame_colours(*numbers[0]) if numbers else None
    write_square(path, shown.pictures, cells, columns, rows, side=side, frames=frames)
    return path
