"""The page on which runs on one dataset are explored, and pictures on a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cml.checks.audit_list import AUDIT
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.doors.trained_run import TrainedRun
    from cml.explore.explore_items import ExploreOptions
    from cml.explore.explorer import Explorer


def explore(
    self: TrainedRun,
    *others: TrainedRun,
    beside: Sequence[str] = ("frozen", "oracle"),
    splits: Sequence[str] = (),
    maps: Sequence[str] = (),
    count: int = 10_000,
    path: Path | str | None = None,
) -> Explorer:
    """Write explorer.html into the run folder: maps, neighbours and pairs by embedding and by label.

    It is one file that needs no network. As the last line of a notebook's cell it is shown in place.

    Args:
        *others: Further runs on the same dataset, a tab each.
        beside: Further tabs: ``frozen``, features of a frozen ImageNet network, and ``oracle``, the labels.
        splits: Which items: train, query, gallery; all when none are given, or query where the queries are training
            items again.
        maps: Maps of each embedding: pca, tsne, umap; pca and, if it is installed, tsne when none are given.
        count: Maximum number of items (random subset). With more than 10,000, the pictures are written to a folder
            beside the page.
        path: Where to write the page instead.

    Returns:
        The page.

    Raises:
        UserError: an unknown map or tab, a map whose package is not installed, runs on different datasets.
    """
    from cml.explore.explore_items import EXPLORER, ExploreOptions

    place = self.folder / EXPLORER if path is None else Path(path)
    return explore_runs(by_title([self, *others]), place, ExploreOptions(beside, splits, maps, count))


def square(
    self: TrainedRun, path: Path, grid: str, *, splits: Sequence[str] = (), map_name: str = "tsne", side: int = 48
) -> Path:
    """Write pictures of the dataset on a grid, each near its place on a map; see ``write_items_square``.

    Args:
        path: Where to write the PNG.
        grid: Columns and rows, as in "60x40".
        splits: Which items: train, query, gallery; all if there are none.
        map_name: The map that gives the places: pca, tsne or umap.
        side: Size of a picture in pixels.

    Returns:
        The file.

    Raises:
        UserError: The grid is too large, or the map is unknown or its package not installed.
    """
    from cml.explore.explore_items import write_items_square
    from cml.explore.picture_grid import grid_size

    columns, rows = grid_size(grid)
    items = self.items(splits, count=columns * rows)
    shown = items.present(self.task, self.report, channels=self.form.channels)
    labelled = items.label(self.open_inputs)
    return write_items_square(self, labelled, shown, path, (columns, rows), map_name=map_name, side=side)


def by_title(runs: Sequence[TrainedRun]) -> dict[str, TrainedRun]:
    """Runs by the name of their method, or that and the folder's where several have it."""
    names = [run.config.train.method for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {run.folder.name}": run
        for name, run in zip(names, runs, strict=True)
    }


def explore_runs(opened: Mapping[str, TrainedRun], path: Path, options: ExploreOptions) -> Explorer:
    """Write the explorer of runs on one dataset."""
    from cml.explore.explore_items import explore_items
    from cml.explore.maps import check_maps

    check_maps(tuple(options.maps))
    first = next(iter(opened.values()))
    for other in opened.values():
        if other.dataset.fingerprint != first.dataset.fingerprint:
            raise UserError(f"{other.folder} was trained on another dataset than {first.folder}.")
    items = first.items(options.splits, count=options.count, seed=options.seed)
    audit = first.folder / AUDIT
    shown = items.present(
        first.task, first.report, channels=first.form.channels, audit=audit if audit.exists() else None
    )
    return explore_items(opened, items.label(first.open_inputs), shown, path, options)
