"""The explorer of runs: their items through the labels, and through each run's embedding."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cml.command_line.options import say
from cml.distances.dataset_labels import encode
from cml.errors import UserError
from cml.runs.planned import slug
from cml.runs.retrieved import Drawn
from cml.runs.trained_run import TrainedRun
from cml.storage.atomic import read_json
from cml.training.run_folder import MODEL

if TYPE_CHECKING:
    from cml.data.prepared import Split
    from cml.distances.labels import Labels

EXPLORER, SQUARE = "explorer.html", "square.png"
BESIDE = ("frozen", "oracle")
_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile


@dataclass(frozen=True)
class Explorer:
    """The explorer, written; the last line of a notebook's cell shows it.

    Attributes:
        path: The page.
    """

    path: Path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="960" style="border:0" title="explorer"'
        return f'<iframe srcdoc="{page}" {frame}></iframe>'


@dataclass(frozen=True)
class Chosen:
    """The items that are looked at.

    Attributes:
        trained: The run whose label distance counts.
        items: N pairs of a split and a number in it.
        labels: N encoded labels.
    """

    trained: TrainedRun
    items: Sequence[tuple[Split, int]]
    labels: Labels

    @classmethod
    def of(cls, trained: TrainedRun, roles: Sequence[str], count: int, seed: int) -> Chosen:
        """All items of ``roles``, or of every role where none are given; ``count`` at random of more."""
        splits = [trained.dataset.split(role) for role in (roles or trained.dataset.info.roles)]
        listed = [(split, item) for split in splits for item in range(len(split))]
        rows = np.arange(len(listed))
        if len(rows) > count:
            rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
            say(f"{count:,} of {len(listed):,} items, drawn at random")
        labels = encode(trained.distance, trained.dataset, [split.role for split in splits])[rows]
        return cls(trained, [listed[row] for row in rows], labels)

    @property
    def paths(self) -> list[Path]:
        """Image files."""
        return [split.paths[item] for split, item in self.items]

    @property
    def pictures(self) -> list[Drawn]:
        """What makes the pictures, their labels drawn on them."""
        shown = self.trained.task, self.trained.dataset
        return [Drawn(*shown, split, split.paths[item], item, _SIDE) for split, item in self.items]

    def columns(self) -> dict[str, tuple[NDArray[Any], float | None]]:
        """The columns of plain labels, as the dataset calls them."""
        from cml.explore.views import columns_of

        info = self.trained.dataset.info
        columns = columns_of(
            info.label_column, [split.labels[item] for split, item in self.items], self.trained.distance
        )
        names = info.details.get("label_columns")
        if isinstance(names, list) and len(names) == len(columns):
            return dict(zip(map(str, names), columns.values(), strict=True))
        return columns


def explore_runs(
    opened: Mapping[str, TrainedRun],
    path: Path,
    *,
    beside: Sequence[str] = BESIDE,
    roles: Sequence[str] = (),
    maps: Sequence[str] = (),
    count: int = 10_000,
    seed: int = 0,
) -> Explorer:
    """Write the explorer of runs on one dataset.

    Args:
        opened: Title to run; the first one's label distance counts.
        path: The HTML file.
        beside: Further tabs: ``frozen``, features of a frozen ImageNet network, and ``oracle``, the labels themselves.
        roles: Which items: train, query, gallery; all when none are given.
        maps: Maps of each embedding: pca, tsne, umap; those of the first two that can be made here when none are given.
        count: Items at most, drawn at random from more; over 10,000, the pictures lie in a folder beside the page.
        seed: Of the choice of items, the landmarks and the maps.

    Raises:
        UserError: an unknown map or tab, a map whose package is not installed, runs on different datasets.
    """
    from cml.explore.maps import known_maps
    from cml.explore.page import Items, write_explorer
    from cml.explore.views import embedding_view, label_side, oracle_view

    maps = known_maps(tuple(maps))
    if wrong := set(beside) - set(BESIDE):
        raise UserError(f"'beside' must be among {', '.join(BESIDE)}. Got {sorted(wrong)[0]!r} instead.")
    trained = next(iter(opened.values()))
    for other in opened.values():
        if other.dataset.fingerprint != trained.dataset.fingerprint:
            raise UserError(f"{other.folder} was trained on another dataset than {trained.folder}.")
    chosen = Chosen.of(trained, roles, count, seed)
    held_out = np.array([split.role != "train" for split, _ in chosen.items])
    side = label_side(trained.distance, chosen.labels, held_out=held_out, seed=seed)

    views = [
        embedding_view(name, run.embed_files(chosen.paths), side, maps, stages=run.stages(chosen.paths), seed=seed)
        for name, run in opened.items()
    ]
    if "frozen" in beside and trained.frozen is not None:
        features = trained.embed_files(chosen.paths, frozen=True)
        views.append(embedding_view(trained.frozen[0], features, side, maps, seed=seed))
    if "oracle" in beside:
        views.append(oracle_view(side, maps, seed=seed))

    items = Items(
        [split.item_ids[item] for split, item in chosen.items],
        [picture.words() for picture in chosen.pictures],
        [split.role for split, _ in chosen.items],
        chosen.pictures,
        chosen.columns(),
        trained.task.legend(trained.dataset.info),
    )
    factor, unit = trained.report
    write_explorer(path, items, side, views, title=trained.dataset.info.name, unit=unit, factor=factor)
    return Explorer(path)


def write_run_square(
    trained: TrainedRun, path: Path, grid: str, *, roles: Sequence[str] = (), map_name: str = "tsne", side: int = 48
) -> Path:
    """Write a PNG of a grid of pictures, near each other as their embeddings are; a number as label colours the frame.

    Args:
        trained: The run.
        path: The PNG.
        grid: COLUMNSxROWS; items are drawn at random, if there are more.
        roles: Which items: train, query, gallery; all when none are given.
        map_name: The map that they are taken from: pca, tsne, umap.
        side: Pixels of a picture.

    Raises:
        UserError: a grid or size out of range, or a map whose package is not installed.
    """
    from cml.explore.maps import MAPS, known_maps
    from cml.explore.square import frame_colours, grid_size, on_a_grid, write_square

    columns, rows = grid_size(grid)
    known_maps((map_name,))
    chosen = Chosen.of(trained, roles, columns * rows, 0)
    cells = on_a_grid(MAPS[map_name][2](trained.embed_files(chosen.paths), 0), columns, rows)
    numbers = [column for column in chosen.columns().values() if column[0].dtype.kind == "f"]
    frames = frame_colours(*numbers[0]) if numbers else None
    write_square(path, chosen.pictures, cells, columns, rows, side=side, frames=frames)
    return path


def runs_of(folder: Path) -> dict[str, Path]:
    """The runs that a folder is of: title to folder; of a comparison the first run of each variant."""
    comparison = folder / "comparison.json"
    if not comparison.is_file():
        return {"": folder}
    rows = read_json(comparison, "a comparison").get("rows", {})
    found = {name: min((folder / slug(name)).rglob(MODEL), default=None) for name in rows}
    runs = {name: model.parent for name, model in found.items() if model is not None}
    if not runs:
        raise UserError(f"{folder} is a comparison whose runs are gone; give run folders.")
    return runs


def titled(runs: Sequence[TrainedRun]) -> dict[str, TrainedRun]:
    """Runs by the name of their loss, or that and the folder's where several have it."""
    names = [run.config.train.loss for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {run.folder.name}": run
        for name, run in zip(names, runs, strict=True)
    }
