"""The runs of a comparison: which there are, which are finished already, which evaluations can be kept.

Not for: training them and making a table of them (compare.py).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml import plugins
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.retrieval.embeddings import EMBEDDING
from cml.retrieval.results import Evaluation
from cml.storage.atomic import read_json
from cml.task import Task
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset


_LONGEST = 120  # letters of a folder's name


@dataclass(frozen=True)
class Planned:
    """One run of a comparison.

    Attributes:
        variant: Its variant.
        dimension: Of its embedding.
        seed: Of everything random.
        options: Its options, variant, dimension and seed among them.
        folder: Its run folder.
    """

    variant: str
    dimension: int
    seed: int
    options: TrainConfig
    folder: Path


def planned(
    task: Task, config: TrainConfig, out: Path, variants: Sequence[str], seeds: int, dimensions: Sequence[int]
) -> list[Planned]:
    """All runs of a comparison; those of the first dimension, which the table needs, come first.

    All variants see batches of one size: a sampler that a variant brings along takes over the shared one's
    ``batch_size``.

    Raises:
        UserError: two variants of the task would share a folder, or the name of one has nothing that a folder may have.
    """
    _check_folders(task)
    runs = []
    for dimension in dimensions:
        for variant in variants:
            chosen = varied(replace(config, dimension=dimension), task.variants[variant])
            for seed in range(seeds):
                options = replace(chosen, seed=seed)
                folder = _folder(out / slug(variant), dimension, seed, dimensions, seeds)
                runs.append(Planned(variant, dimension, seed, options, folder))
    return runs


def varied(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """The options of a variant."""
    found = dict(changes)
    if "sampler" in found:
        found["sampler"] = _of_equal_batches(found["sampler"], config.sampler)
    return replace(config, **found)


def _folder(base: Path, dimension: int, seed: int, dimensions: Sequence[int], seeds: int) -> Path:
    """A run's folder, named by what there are several of, or the one that another comparison began the run in."""
    sizes = [f"dimension-{dimension}", *([""] if dimension == dimensions[0] else [])]
    numbers = [f"seed-{seed}", *([""] if seed == 0 else [])]
    places = [
        base / size / number
        for size in (sizes if len(dimensions) > 1 else sizes[::-1])
        for number in (numbers if seeds > 1 else numbers[::-1])
    ]
    return next((place for place in places if (place / "config.json").exists()), places[0])


def finished(run: Planned, dataset: PreparedDataset) -> bool:
    """Whether the run needs no more training.

    Raises:
        UserError: its folder holds a run with other options, on another dataset or with other code of a plugin.
    """
    from cml.training import checkpoint, run_folder

    done = (run.folder / run_folder.MODEL).exists()
    if not done and not (run.folder / checkpoint.CHECKPOINT).exists():
        return False
    saved = run_folder.check_same(run.folder, run.options, dataset.fingerprint, dataset.made_of)
    if changed := plugins.changed(saved.plugins):
        raise UserError(f"{run.folder}: {changed} Delete this folder to train it again, or choose another --out.")
    return done


def kept_evaluation(folder: Path, like: Evaluation, rows: Sequence[str] = ()) -> Evaluation | None:
    """The evaluation that an earlier comparison left in a run folder, if it measures what ``like`` does, of ``rows``.

    It is never of an earlier model: whoever starts a run takes it away.
    """
    try:
        kept = Evaluation.from_json(read_json(folder / "evaluation.json", "an evaluation"))
    except (OSError, DataError):
        return None
    same = all(
        getattr(kept, name) == getattr(like, name)
        for name in ("unit", "reported_unit", "gain", "queries", "gallery", "hit_neighbors", "recall_within")
    )
    same = same and all(name in kept.rows for name in rows)
    return kept if same and set(kept.rows.get(EMBEDDING, ())) == set(like.rows[EMBEDDING]) else None


def _check_folders(task: Task) -> None:
    taken: dict[str, str] = {}
    for variant in task.variants:
        other = taken.setdefault(slug(variant), variant)
        if other != variant or not slug(variant):
            beside = f", as those of {other!r} do" if other != variant else ""
            raise UserError(
                f"The runs of the variant {variant!r} of task {task.name!r} would go into the folder "
                f"{slug(variant)!r}{beside}: only the letters a to z and digits of a name count. Rename one."
            )


def _of_equal_batches(sampler: str, shared: str) -> str:
    """A variant's own sampler, with the batch size that all variants share unless it states one."""
    own, given = Choice.parse(sampler), Choice.parse(shared)
    if "batch_size" in own.settings or "batch_size" not in given.settings:
        return sampler
    return str(Choice(own.name, {**own.settings, "batch_size": given.settings["batch_size"]}))


def slug(name: str) -> str:
    """A variant's name as a folder's."""
    text = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
