"""The runs of a comparison: which there are, which are finished, and which evaluations can be kept."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cml import plugins
from cml.comparing.rows import Row, row_folders
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.option_types import check_options
from cml.retrieval.embeddings import EMBEDDING
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import main_metric
from cml.storage.json_file import read_json
from cml.training import checkpoint, run_folder, saved_model
from cml.training.config import TrainConfig

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
    if any(row.options.tune for row in rows):
        raise UserError("'tune' chooses loss and steps itself, so that it cannot be compared: leave it out.")
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
