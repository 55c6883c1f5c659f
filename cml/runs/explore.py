"""The explorer of runs: their items through the labels, and through each run's embedding."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.command_line.options import say
from cml.distances.dataset_labels import encode
from cml.errors import UserError
from cml.runs.planned import slug
from cml.runs.retrieved import Drawn
from cml.runs.trained_run import TrainedRun
from cml.storage.atomic import read_json
from cml.training.run_folder import MODEL

EXPLORER = "explorer.html"
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
    from cml.explore.views import columns_of, embedding_view, label_side, oracle_view

    maps = known_maps(tuple(maps))
    if wrong := set(beside) - set(BESIDE):
        raise UserError(f"What lies beside the runs is one of {', '.join(BESIDE)}. Got {sorted(wrong)[0]!r} instead.")
    trained = next(iter(opened.values()))
    dataset = trained.dataset
    for other in opened.values():
        if other.dataset.fingerprint != dataset.fingerprint:
            raise UserError(f"{other.folder} was trained on another dataset than {trained.folder}.")
    splits = [dataset.split(role) for role in (roles or dataset.info.roles)]
    listed = list(itertools.chain.from_iterable(((split, item) for item in range(len(split))) for split in splits))
    rows = np.arange(len(listed))
    if len(rows) > count:
        rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
        say(f"{count:,} of {len(listed):,} items, drawn at random")
    chosen = [listed[row] for row in rows]
    paths = [split.paths[item] for split, item in chosen]
    labels = encode(trained.distance, dataset, [split.role for split in splits])[rows]
    held_out = np.array([split.role != "train" for split, _ in chosen])
    side = label_side(trained.distance, labels, held_out=held_out, seed=seed)

    views = [embedding_view(name, run.embed_files(paths), side, maps, seed=seed) for name, run in opened.items()]
    if "frozen" in beside and trained.frozen is not None:
        title = trained.frozen[0]
        views.append(embedding_view(title, trained.embed_files(paths, frozen=True), side, maps, seed=seed))
    if "oracle" in beside:
        views.append(oracle_view(side, maps, seed=seed))

    columns = columns_of(dataset.info.label_column, [split.labels[item] for split, item in chosen], trained.distance)
    names = dataset.info.details.get("label_columns")
    if isinstance(names, list) and len(names) == len(columns):
        columns = dict(zip(map(str, names), columns.values(), strict=True))
    pictures = [Drawn(trained, split, split.paths[item], item, _SIDE) for split, item in chosen]
    items = Items(
        [split.item_ids[item] for split, item in chosen],
        [picture.words() for picture in pictures],
        [split.role for split, _ in chosen],
        pictures,
        columns,
    )
    factor, unit = trained.report
    write_explorer(path, items, side, views, title=dataset.info.name, unit=unit, factor=factor)
    return Explorer(path)


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
    names = [run.config.train.loss.partition("(")[0] for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {run.folder.name}": run
        for name, run in zip(names, runs, strict=True)
    }
