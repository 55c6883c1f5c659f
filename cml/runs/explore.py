"""The explorer of runs: their items by label, and by each run's embedding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64
from cml.console.messages import say
from cml.data.band_picture import describe_shown_bands
from cml.data.vectors import Vectors
from cml.distances.dataset_labels import encode_labels
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.option_types import check_options
from cml.runs.audit_list import AUDIT, SCORE, read_scores
from cml.runs.explorer import Explorer
from cml.runs.held_out_judgements import describe_held_out
from cml.runs.retrieved import Drawn
from cml.runs.trained_run import TrainedRun

EXPLORER, SQUARE = "explorer.html", "square.png"
BESIDE = ("frozen", "oracle")
_SIDE = 256  # pixels that a picture is drawn with before it becomes a tile


@dataclass(frozen=True)
class ExploreOptions:
    """What the explorer shows.

    Attributes:
        beside: Further tabs: ``frozen``, features of a frozen ImageNet network, and ``oracle``, the labels.
        splits: Which items: train, query, gallery; all if there are none.
        maps: Maps of each embedding: pca, tsne, umap; pca and, if it is installed, tsne if there are none.
        count: Maximum number of items (random subset).
        seed: Random seed of the subset, the pairs and the maps.

    Raises:
        UserError: A tab is unknown.
    """

    beside: Sequence[str] = BESIDE
    splits: Sequence[str] = ()
    maps: Sequence[str] = ()
    count: int = 10_000
    seed: int = 0

    def check(self) -> None:
        """Refuse options that are out of range, with a UserError."""
        unknown = sorted(set(self.beside) - set(BESIDE))
        if unknown:
            raise UserError(f"'beside' must be among {', '.join(BESIDE)}. Got {unknown[0]!r} instead.")


def explore_runs(opened: Mapping[str, TrainedRun], path: Path, options: ExploreOptions) -> Explorer:
    """Write the explorer of runs on one dataset.

    Args:
        opened: Title of a tab to run. The label distance is that of the first.
        path: Where to write the page.
        options: Which items, tabs and maps.

    Raises:
        UserError: A map is unknown or its package not installed, or the runs were trained on different datasets.
    """
    from cml.explore.further_columns import further_columns
    from cml.explore.label_side import build_label_side
    from cml.explore.maps import check_maps
    from cml.explore.page import Items, write_explorer
    from cml.explore.views import build_embedding_view, build_oracle_view

    options = check_options(options)
    maps = check_maps(tuple(options.maps))
    first = next(iter(opened.values()))
    for other in opened.values():
        if other.dataset.fingerprint != first.dataset.fingerprint:
            raise UserError(f"{other.folder} was trained on another dataset than {first.folder}.")
    pictures, labels = sample_items(first, options.splits, options.count, options.seed)
    inputs, roles = inputs_of(pictures), [picture.split.role for picture in pictures]
    side = build_label_side(first.distance, labels, held_out=np.array(roles) != "train", seed=options.seed)

    views = [
        build_embedding_view(title, run.embed_inputs(inputs), side, maps, stages=run.stages(inputs), seed=options.seed)
        for title, run in opened.items()
    ]
    if "frozen" in options.beside and first.frozen:
        title = list(first.frozen)[-1]  # vectors are standardised, as ``embed_inputs`` gives them
        features = first.embed_inputs(inputs, frozen=True)
        views.append(build_embedding_view(title, features, side, maps, seed=options.seed))
    if "oracle" in options.beside and side.is_known:
        views.append(build_oracle_view(side, maps, seed=options.seed))

    ids = [picture.split.item_ids[picture.item] for picture in pictures]
    words = [picture.words() for picture in pictures]
    legend = first.task.legend(first.dataset.info)
    info = first.dataset.info
    note = f"{describe_held_out(info)} {describe_shown_bands(first.model.config.inputs.channels)}".strip()
    columns, texts = further_columns(read_further(pictures))
    if (first.folder / AUDIT).exists():
        columns = {SCORE: (_audit_scores(first, pictures), None), **columns}
    colours = colour_columns(first, pictures)
    items = Items(ids, words, roles, pictures, colours, legend, note, columns, texts, info.queries_are_known)
    factor, unit = first.report
    write_explorer(path, items, side, views, title=info.name, unit=unit, factor=factor)
    return Explorer(path)


def _audit_scores(trained: TrainedRun, pictures: Sequence[Drawn]) -> Float64:
    """The scores (N,) of the labels of items by the run's audit; NaN for those that it left out."""
    scores = read_scores(trained.folder / AUDIT)
    keys = [(picture.split.role, picture.split.item_ids[picture.item]) for picture in pictures]
    return np.array([scores.get(key, np.nan) for key in keys])


def sample_items(
    trained: TrainedRun, splits: Sequence[str], count: int | None = None, seed: int = 0
) -> tuple[list[Drawn], Labels]:
    """Choose items of a run's dataset, a random subset if there are too many.

    Args:
        trained: The run.
        splits: Which items: train, query, gallery; all if there are none, or the queries alone where these are training
            items again.
        count: Maximum number of items; None for all.
        seed: Random seed of the subset.

    Returns:
        A drawing of each item, and their encoded labels.

    Raises:
        UserError: Both training items and queries that are the same ones are asked for.
    """
    info = trained.dataset.info
    if info.queries_are_known and len(set(splits)) > 1:
        raise UserError(
            f"The queries of {trained.dataset.folder} are training items again, with other judgements. Name one split, "
            f"train or query. Got {', '.join(splits)}."
        )
    every = ("query",) if info.queries_are_known else info.roles
    opened = [trained.dataset.split(name) for name in (splits or every)]
    items = [(split, item) for split in opened for item in range(len(split))]
    rows = np.arange(len(items))
    if count is not None and len(rows) > count:
        rows = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
        say(f"{count:,} of {len(items):,} items, a random subset")
    labels = encode_labels(trained.distance, trained.dataset, [split.role for split in opened])[rows]
    chosen = [items[row] for row in rows]
    channels = trained.model.config.inputs.channels
    drawings = [
        Drawn(trained.task, trained.dataset, split, split.pictures[item], item, _SIDE, channels)
        for split, item in chosen
    ]
    return drawings, labels


def inputs_of(drawings: Sequence[Drawn]) -> Sequence[Path] | Vectors:
    """Collect what a model embeds of drawn items.

    Args:
        drawings: N items of one dataset.

    Returns:
        Their image files, or their vectors.
    """
    if not drawings or drawings[0].split.vectors is None:
        return [drawing.split.paths[drawing.item] for drawing in drawings]
    splits = {drawing.split.role: drawing.split for drawing in drawings}
    first = drawings[0].split.vectors
    rows = np.empty((len(drawings), first.form.shape[0]), np.float32)
    for role, split in splits.items():
        chosen = [number for number, drawing in enumerate(drawings) if drawing.split.role == role]
        items = np.array([drawings[number].item for number in chosen], np.int64)
        assert split.vectors is not None
        rows[chosen] = split.vectors.read(items)
    return Vectors(rows, columns=first.form.columns)


def read_further(drawings: Sequence[Drawn]) -> list[dict[str, Any]]:
    """Read the further columns of drawn items from metadata.jsonl.

    Args:
        drawings: N items of one dataset.

    Returns:
        The columns of each, as in the JSON.
    """
    chosen = {(drawing.split.role, drawing.item): number for number, drawing in enumerate(drawings)}
    rows: list[dict[str, Any]] = [{} for _ in drawings]
    for role in dict.fromkeys(drawing.split.role for drawing in drawings):
        for item, columns in enumerate(drawings[0].dataset.read_further(role)):
            if (number := chosen.get((role, item))) is not None:
                rows[number] = columns
    return rows


def colour_columns(trained: TrainedRun, pictures: Sequence[Drawn]) -> dict[str, tuple[NDArray[Any], float | None]]:
    """Split the labels of items into columns to colour by, under the names that dataset.json gives them.

    Args:
        trained: The run.
        pictures: The items.

    Returns:
        As ``cml.explore.label_columns.label_columns``.
    """
    from cml.explore.label_columns import label_columns

    info = trained.dataset.info
    labels = [picture.split.labels[picture.item] for picture in pictures]
    columns = label_columns(info.label_column, labels, trained.distance)
    names = info.details.get("label_columns")
    if isinstance(names, list) and len(names) == len(columns):
        return dict(zip(map(str, names), columns.values(), strict=True))
    return columns


def by_title(runs: Sequence[TrainedRun]) -> dict[str, TrainedRun]:
    """Runs by the name of their method, or that and the folder's where several have it."""
    names = [run.config.train.method for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {run.folder.name}": run
        for name, run in zip(names, runs, strict=True)
    }
