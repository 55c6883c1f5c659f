"""The rows of a comparison: names and the options that are trained under them; their runs, and which are done."""

import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cml import distances, plugins
from cml.console.messages import say
from cml.data.input_form import InputForm
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError, quoted_list
from cml.option_types import check_options
from cml.registry import Choice
from cml.retrieval.embeddings import EMBEDDING
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import main_metric
from cml.storage.json_file import read_json
from cml.task import Task
from cml.tasks.baselines import OF_LABEL
from cml.training import checkpoint, run_folder, saved_model
from cml.training.config import TrainConfig
from cml.training.train_options import complete_options
from cml.tuning.learner import DECIDED_BY_TUNE

_LONGEST = 120  # letters of a folder's name


@dataclass(frozen=True)
class Row:
    """One row of a comparison."""

    name: str  # name in the table, in figures and in messages
    options: TrainConfig  # options of training; the comparison sets the seed, and the dimension at further dimensions
    has_own_dimension: bool = False  # whether it is not trained at further dimensions


def rows_of(
    task: Task,
    config: TrainConfig,
    variants: Sequence[str] | None,  # names of variants, in any order
    losses: Sequence[str],
    dataset: PreparedDataset | None = None,  # which decides on rows that depend on its labels and inputs
    *,
    one_size: bool = True,  # whether all rows may have a dimension of their own
) -> list[Row]:
    """Build the rows that compare variants of a task and single losses; without either, those that suit the labels."""
    check_variants(task, variants or ())
    chosen = variants or (() if losses else task.compared or list(task.variants))
    if not chosen and not losses:
        raise UserError(f"The task {task.name!r} names no variants to compare.")
    rows: dict[str, Row] = {}
    size = None if dataset is None else _count_label_numbers(task, dataset, config)
    inputs = InputForm() if dataset is None else dataset.info.inputs
    for name in (name for name in task.variants if name in chosen):
        try:
            row = _variant(name, config, task.variants[name], task.recipe, inputs, size)
            if row.has_own_dimension and not one_size:
                raise UserError(f"{name!r} has a dimension of its own: leave it out, or the further dimensions.")
        except UserError as error:
            if variants:
                raise
            say(f"left out: {name} ({error})")
        else:
            rows[name] = row
    for loss in losses:
        row = Row(loss, replace(config, loss=loss))
        if rows.setdefault(loss, row) != row:
            raise UserError(
                f"Both a variant of task {task.name!r} and a loss are called {loss!r}, with different options. "
                "Compare one of them, or write a setting of the loss in brackets."
            )
    return list(rows.values())


def _variant(
    name: str,
    config: TrainConfig,
    variant: Mapping[str, Any],
    recipe: TrainConfig,
    inputs: InputForm,
    label_size: int | None,  # V, of labels that are vectors of V numbers
) -> Row:
    changes = dict(variant)
    if changes.get("dimension") == OF_LABEL:
        if label_size is None:
            raise UserError(f"{name!r} predicts label vectors, which these labels do not have.")
        changes["dimension"] = label_size
    if "tune" in changes:  # which decides itself what the other rows share
        plain = complete_options(recipe, {}, inputs)
        changes |= {option: getattr(plain, option) for option in DECIDED_BY_TUNE}
        if inputs.kind != "vectors":  # a frozen backbone sees every image once, as it is
            frozen = complete_options(recipe, {"freeze_backbone": True}, inputs)
            names = (option.name for option in fields(frozen) if option.name not in DECIDED_BY_TUNE)
            changes |= {name: getattr(frozen, name) for name in names if getattr(frozen, name) != getattr(plain, name)}
        return Row(name, check_options(replace(config, **changes)), has_own_dimension=True)
    return Row(name, with_changes(config, changes), has_own_dimension="dimension" in changes)


def _count_label_numbers(task: Task, dataset: PreparedDataset, config: TrainConfig) -> int | None:
    """V, of labels that are vectors of V numbers for the label distance; None of others."""
    labels = dataset.split("train").labels
    distance = distances.get(task.label_distance(config, dataset.info)).fit(labels)
    vectors = distance.label_vectors(distance.encode(labels[:2]))
    return None if vectors is None else int(vectors.shape[1])


def check_variants(task: Task, names: Iterable[str]) -> None:
    """Check that the task has variants of these names."""
    for name in names:
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {quoted_list(task.variants)}.")


def with_changes(
    config: TrainConfig,
    changes: Mapping[str, Any],  # options by name
) -> TrainConfig:
    """Change some options, keeping batches of one size.

    A sampler among the changes takes over the batch size of the shared sampler unless it states one of its own.
    """
    config_changes = dict(changes)
    if "sampler" in changes:
        config_changes["sampler"] = with_batch_size_of(changes["sampler"], config.sampler)
    return check_options(replace(config, **config_changes))


def with_batch_size_of(sampler: str, shared: str) -> str:
    """A sampler with the batch size of the shared one, unless it states one of its own."""
    own, other = Choice.parse(sampler), Choice.parse(shared)
    if "batch_size" in own.settings or "batch_size" not in other.settings:
        return sampler
    return str(Choice(own.name, {**own.settings, "batch_size": other.settings["batch_size"]}))


def row_folders(names: Iterable[str], reserved: Iterable[str] = ()) -> dict[str, str]:
    """Name a folder for each row, no two alike.

    A row whose folder would be that of an earlier row, or of another name in ``reserved``, gets a digest of its name.
    So the loss "dense-triplet" lies beside the variant "dense triplet", whether both are compared or one.
    """
    owners: dict[str, str] = {}
    folders = {}
    for name in [*reserved, *names]:
        folder = slug(name)
        if not folder or owners.setdefault(folder, name) != name:
            folder = f"{folder}-{_digest(name)}".lstrip("-")
        folders[name] = folder
    return {name: folders[name] for name in names}


def slug(name: str) -> str:
    """A row's name as a folder's: lower-case letters and digits joined by "-", "" if there are none."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:8]


_SAME_MEASUREMENT = ("unit", "reported_unit", "gain", "queries", "gallery", "hit_neighbors", "recall_within")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a comparison."""

    row: str  # name of its row
    dimension: int  # dimension of the table that it belongs to
    seed: int  # its random seed
    options: TrainConfig  # its options of training, with dimension and seed
    folder: Path


def plan_runs(
    rows: Sequence[Row], out: Path, seeds: int, dimensions: Sequence[int], reserved: Iterable[str] = ()
) -> list[PlannedRun]:
    """List all runs of a comparison; those of the first dimension, which the table needs, come first."""
    if any(row.options.tune and not row.has_own_dimension for row in rows):
        raise UserError("'tune' chooses loss and steps itself, and is a row of its own: leave the option 'tune' out.")
    folders = row_folders([row.name for row in rows], reserved)
    runs = []
    for dimension, row in itertools.product(dimensions, rows):
        options = row.options
        if dimension != dimensions[0]:
            options = check_options(replace(options, dimension=dimension))
        for seed in range(seeds):
            folder = _run_folder(out / folders[row.name], dimension, seed, dimensions, seeds)
            runs.append(PlannedRun(row.name, dimension, seed, replace(options, seed=seed), folder))
    return runs


def _run_folder(base: Path, dimension: int, seed: int, dimensions: Sequence[int], seeds: int) -> Path:
    """A run's folder, named by what there are several of, or the one that another comparison began the run in."""
    sizes = [f"dimension-{dimension}", *([""] if dimension == dimensions[0] else [])]
    numbers = [f"seed-{seed}", *([""] if seed == 0 else [])]
    places = [
        base / size / number
        for size in (sizes if len(dimensions) > 1 else sizes[::-1])
        for number in (numbers if seeds > 1 else numbers[::-1])
    ]
    return next((place for place in places if (place / "config.json").exists()), places[0])


def is_finished(run: PlannedRun, dataset: PreparedDataset) -> bool:
    """Whether the run needs no more training."""
    has_model = (run.folder / saved_model.MODEL).exists()
    if not has_model and not (run.folder / checkpoint.CHECKPOINT).exists():
        return False
    saved = run_folder.check_same(run.folder, run.options, dataset.fingerprint, dataset.made_of)
    if changed := plugins.explain_changes(saved.plugins):
        raise UserError(f"{run.folder}: {changed} Delete this folder to train it again, or choose another --out.")
    return has_model


def kept_evaluation(folder: Path, like: Evaluation, rows: Sequence[str] = ()) -> Evaluation | None:
    """Read the evaluation that an earlier comparison left in a run folder.

    It is always of the folder's model: whoever starts a run there deletes it.
    """
    try:
        kept = Evaluation.from_json(read_json(folder / "evaluation.json", "an evaluation"))
    except (OSError, DataError):
        return None
    if any(getattr(kept, name) != getattr(like, name) for name in _SAME_MEASUREMENT):
        return None
    if not kept.rows.keys() >= set(rows):
        return None
    if set(kept.rows.get(EMBEDDING, ())) != set(like.rows[EMBEDDING]):
        return None
    main = main_metric(list(like.rows[EMBEDDING]))
    kept_values, values = (evaluation.rows[EMBEDDING][main].per_query for evaluation in (kept, like))
    return kept if len(kept_values) == len(values) else None  # verdicts pair the queries of all runs
