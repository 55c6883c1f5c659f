"""Several losses, one network, one budget, several seeds: the runs, the table and the figures.

Every run is kept; a comparison cut off and started again trains and evaluates only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cml.command_line.options import say
from cml.errors import UserError
from cml.retrieval.comparison import Comparison
from cml.retrieval.results import Evaluation
from cml.runs.evaluate import EMBEDDING, evaluate_run
from cml.runs.pictures import sheet_variants, write_pictures
from cml.runs.planned import finished, kept_evaluation, planned
from cml.runs.train import train_task
from cml.runs.trained_run import TrainedRun
from cml.storage.atomic import atomic_file, write_json
from cml.task import Task
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset


@dataclass(frozen=True)
class Compared:
    """A finished comparison.

    Attributes:
        comparison: Its figures.
        shown: The variants that the sheet shows, to their runs of seed 0 at the dimension of the table.
    """

    comparison: Comparison
    shown: Mapping[str, TrainedRun]


def with_losses(task: Task, losses: Sequence[str]) -> Task:
    """The task with a variant more for each loss, called as the loss is written.

    Raises:
        UserError: a loss that does not exist, or a setting that it does not have.
    """
    if not losses:
        return task
    from cml.losses import registry

    for loss in losses:
        registry.make(loss)
    return replace(task, variants={**task.variants, **{loss: {"loss": loss} for loss in losses}})


def compare(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    variants: Sequence[str] | None = None,
    seeds: int = 3,
    dimensions: Sequence[int] = (),
) -> Compared:
    """Train every variant with every seed, evaluate, and write comparison.json, table.md and the figures into ``out``.

    Args:
        task: The task.
        dataset: Its prepared dataset.
        config: Options that all variants share; its dimension is that of the table.
        out: Folder; finished runs found there are kept and not trained again.
        variants: Names among ``task.variants``, taken in its order; None for all.
        seeds: Runs a variant.
        dimensions: Further dimensions to train every variant at.

    Raises:
        UserError: unknown variant, or a run in ``out`` with other options or on another dataset.
    """
    for name in variants or ():
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {quoted(task.variants)}.")
    chosen = [name for name in task.variants if variants is None or name in variants]
    if not chosen:
        raise UserError(f"The task {task.name!r} names no variants to compare.")
    if seeds < 1:
        raise UserError(f"'seeds' must be at least 1. Got {seeds} instead.")
    sizes = [config.dimension, *(one for one in dict.fromkeys(dimensions) if one != config.dimension)]

    found: dict[int, dict[str, list[Evaluation]]] = {size: {name: [] for name in chosen} for size in sizes}
    shown: dict[str, TrainedRun] = {}
    references: Evaluation | None = None
    plan = planned(task, config, out, chosen, seeds, sizes)
    for number, one in enumerate(plan, 1):
        if not finished(one, dataset):
            words = f", {one.dimension} dimensions" if len(sizes) > 1 else ""
            say(f"{number}/{len(plan)} {one.variant}, seed {one.seed}{words}")
            train_task(task, dataset, one.options, one.folder, resume=True)
        evaluation = None if references is None else kept_evaluation(one.folder, references)
        wanted = one.variant in sheet_variants(chosen) and one.variant not in shown
        if evaluation is None or wanted:
            trained = TrainedRun.open(one.folder, data=dataset.folder, device=config.device)
            shown |= {one.variant: trained} if wanted else {}
            if evaluation is None:
                evaluation = evaluate_run(trained, references=references is None)
                write_json(one.folder / "evaluation.json", evaluation.to_json())
        references = references or evaluation
        found[one.dimension][one.variant].append(evaluation)
    assert references is not None

    main, *others = sizes
    comparison = Comparison(found[main], references, EMBEDDING, main, {size: found[size] for size in others})
    write_json(out / "comparison.json", comparison.to_json())
    with atomic_file(out / "table.md") as temporary:
        temporary.write_text(f"{comparison.markdown()}\n\n{comparison.notes()}\n", encoding="utf-8")
    write_pictures(comparison, shown, out)
    return Compared(comparison, shown)


def quoted(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)
