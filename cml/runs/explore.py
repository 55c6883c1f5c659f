"""The explorer of runs: their items through the labels, and through each run's embedding."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.console.messages import say
from cml.distances.dataset_labels import encode
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.runs.retrieved import Drawn
from cml.runs.trained_run import TrainedRun

EXPLORER, SQUARE = "explorer.html", "square.png"
BESIDE = ("frozen", "oracle")
_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile


@dataclass(frozen=True)
class Explorer:
    """The explorer, written to ``path``; the last line of a notebook's cell shows it."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    __fspath__ = __str__

    def _repr_html_(self) -> str:
        page = html.escape(self.path.read_text(encoding="utf-8"), quote=True)
        frame = 'sandbox="allow-scripts allow-downloads" width="100%" height="960" style="border:0" title="explorer"'
        return f'<iframe srcdoc="{page}" {frame}></iframe>'


def _drawn(trained: TrainedRun, roles: Sequence[str], count: int, seed: int) -> tuple[list[Drawn], Labels]:
    """All items of ``roles``, or of every role where none are given, ``count`` at random of more; and their labels."""
    splits = [trained.dataset.split(role) for role in (roles or trained.dataset.info.roles)]
    listed = [(split, item) for split in splits for item in range(len(split))]
    rows = np.arange(len(listed))
    if len(rows) > count:
        rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
        say(f"{count:,} of {len(listed):,} items, drawn at random")
    labels = encode(trained.distance, trained.dataset, [split.role for split in splits])[rows]
    shown = trained.task, trained.dataset
    some = [listed[row] for row in rows]
    return [Drawn(*shown, split, split.paths[item], item, _SIDE) for split, item in some], labels


def _columns(trained: TrainedRun, pictures: Sequence[Drawn]) -> dict[str, tuple[NDArray[Any], float | None]]:
    from cml.explore.views import columns_of

    info = trained.dataset.info
    columns = columns_of(info.label_column, [one.split.labels[one.item] for one in pictures], trained.distance)
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
    """Write the explorer of runs on one dataset, by title; the label distance is the first's. See ``Run.explore``."""
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
    pictures, labels = _drawn(trained, roles, count, seed)
    paths, roles = [one.path for one in pictures], [one.split.role for one in pictures]
    side = label_side(trained.distance, labels, held_out=np.array(roles) != "train", seed=seed)

    views = [
        embedding_view(name, run.embed_files(paths), side, maps, stages=run.stages(paths), seed=seed)
        for name, run in opened.items()
    ]
    if "frozen" in beside and trained.frozen is not None:
        features = trained.embed_files(paths, frozen=True)
        views.append(embedding_view(trained.frozen[0], features, side, maps, seed=seed))
    if "oracle" in beside:
        views.append(oracle_view(side, maps, seed=seed))

    ids, words = [one.split.item_ids[one.item] for one in pictures], [one.words() for one in pictures]
    legend = trained.task.legend(trained.dataset.info)
    items = Items(ids, words, roles, pictures, _columns(trained, pictures), legend)
    factor, unit = trained.report
    write_explorer(path, items, side, views, title=trained.dataset.info.name, unit=unit, factor=factor)
    return Explorer(path)


def write_run_square(
    trained: TrainedRun, path: Path, grid: str, *, roles: Sequence[str] = (), map_name: str = "tsne", side: int = 48
) -> Path:
    """Write a PNG of COLUMNSxROWS pictures, near where their embeddings are; a number as label colours the frame."""
    from cml.explore.maps import MAPS, known_maps
    from cml.explore.square import frame_colours, grid_size, on_a_grid, write_square

    columns, rows = grid_size(grid)
    known_maps((map_name,))
    pictures, _ = _drawn(trained, roles, columns * rows, 0)
    embeddings = trained.embed_files([one.path for one in pictures])
    cells = on_a_grid(MAPS[map_name][2](embeddings, 0), columns, rows)
    numbers = [column for column in _columns(trained, pictures).values() if column[0].dtype.kind == "f"]
    frames = frame_colours(*numbers[0]) if numbers else None
    write_square(path, pictures, cells, columns, rows, side=side, frames=frames)
    return path


def titled(runs: Sequence[TrainedRun]) -> dict[str, TrainedRun]:
    """Runs by the name of their loss, or that and the folder's where several have it."""
    names = [run.config.train.loss for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {run.folder.name}": run
        for name, run in zip(names, runs, strict=True)
    }
