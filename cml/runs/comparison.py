"""Several losses, one network, one budget, several seeds: the runs, the table and the figures.

Every run is kept; a comparison cut off and started again trains and evaluates only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cml import distances
from cml.command_line.options import going_on, say
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.retrieval.comparison import CUT, Comparison
from cml.retrieval.embeddings import EMBEDDING, cut_row
from cml.retrieval.results import Evaluation
from cml.runs.evaluate import evaluate_run
from cml.runs.gallery import GALLERY, write_run_gallery
from cml.runs.pictures import sheet_note, sheet_variants, write_pictures
from cml.runs.planned import Planned, finished, kept_evaluation, planned
from cml.runs.report import write_report
from cml.runs.train import train_task
from cml.runs.trained_run import TrainedRun
from cml.storage.atomic import atomic_file, write_json
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.training.callbacks import track_figures, with_tracker
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.trackers import Tracker


@dataclass(frozen=True)
class Compared:
    """A finished comparison.

    Attributes:
        comparison: Its figures.
        gallery: The page of what the first variant retrieves, beside the first binary one, or else the second.
        plan: Its runs.
    """

    comparison: Comparison
    gallery: Path
    plan: Sequence[Planned]


def with_losses(task: Task, losses: Sequence[str]) -> Task:
    """The task with a variant more for each loss, called as the loss is written.

    Raises:
        UserError: a loss that does not exist, or a setting that it does not have.
    """
    if not losses:
        return task
    from cml.losses import get

    for loss in losses:
        get(loss)
    return replace(task, variants={**task.variants, **{loss: {"loss": loss} for loss in losses}})


def check_labels(task: Task, dataset: PreparedDataset, runs: Iterable[TrainConfig]) -> None:
    """Refuse a loss whose labels the dataset does not have before another loss is trained."""
    from cml import losses

    labels = dataset.split("train").labels
    for options in {(one.loss, one.label_distance): one for one in runs}.values():
        distance = distances.get(task.label_distance(options, dataset.info)).fit(labels)
        some, kind = distance.encode(labels[:2]), losses.get(options.loss).labels
        found = {"classes": distance.class_names, "vectors": distance.label_vectors}
        if kind in found and found[kind](some) is None:
            raise UserError(
                f"The loss {options.loss!r} is over {kind}, which the label distance {distance.name!r} does not give. "
                "Leave it out, or take it through a rule, as in binary(loss=triplet, rule=nearest, k=5)."
            )


@going_on()
def run_comparison(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    variants: Sequence[str] | None = None,
    seeds: int = 3,
    dimensions: Sequence[int] = (),
    cut: bool = False,
    recall_within: float = 0.0,
    tracker: str | Tracker | None = None,
) -> Compared:
    """Train every variant with every seed, evaluate, and write table, gallery and figures into ``out``.

    Args:
        task: The task.
        dataset: Its prepared dataset.
        config: Options that all variants share; its dimension is that of the table.
        out: Folder; finished runs found there are kept and not trained again.
        variants: Names among ``task.variants``, taken in its order; None for all.
        seeds: Runs a variant.
        dimensions: Further dimensions to train every variant at.
        cut: At these also cut every variant's embedding of the first dimension to its first numbers.
        recall_within: See ``evaluate_run``.
        tracker: An experiment tracker that follows every run.

    Raises:
        UserError: unknown variant, sizes that nothing can be cut to, or a run in ``out`` with other options or on
            another dataset.
    """
    check_variants(task, variants or ())
    chosen = [name for name in task.variants if variants is None or name in variants]
    if not chosen:
        raise UserError(f"The task {task.name!r} names no variants to compare.")
    if seeds < 1:
        raise UserError(f"'seeds' must be at least 1. Got {seeds} instead.")
    sizes = [config.dimension, *(one for one in dict.fromkeys(dimensions) if one != config.dimension)]
    if cut and (len(sizes) < 2 or max(sizes) > sizes[0]):
        raise UserError(
            "What is cut is the embedding of 'dimension', at smaller 'dimensions'. "
            f"Got {sizes[0]} and {list(sizes[1:]) or 'none'} instead."
        )

    found: dict[int, dict[str, list[Evaluation]]] = {size: {name: [] for name in chosen} for size in sizes}
    shown: dict[str, TrainedRun] = {}
    references: Evaluation | None = None
    plan = planned(task, config, out, chosen, seeds, sizes)
    check_labels(task, dataset, [one.options for one in plan if not finished(one, dataset)])
    for number, one in enumerate(plan, 1):
        check_no_link(out, *one.folder.relative_to(out).parts)
        if not finished(one, dataset):
            words = f", {one.dimension} dimensions" if len(sizes) > 1 else ""
            say(f"{number}/{len(plan)} {one.variant}, seed {one.seed}{words}")
            watched = with_tracker((), tracker)
            train_task(task, dataset, one.options, one.folder, resume=True, callbacks=watched)
        smaller = sizes[1:] if cut and one.dimension == sizes[0] else []
        rows = [cut_row(size) for size in smaller]
        evaluation = None if references is None else kept_evaluation(one.folder, references, rows)
        wanted = one.variant in sheet_variants(chosen) and one.variant not in shown
        if evaluation is None or wanted:
            trained = TrainedRun.open(one.folder, data=dataset.folder, device=config.device)
            shown |= {one.variant: trained} if wanted else {}
            if evaluation is None:
                evaluation = evaluate_run(
                    trained, recall_within=recall_within, dimensions=smaller, references=references is None
                )
                write_json(one.folder / "evaluation.json", evaluation.to_json())
                if tracker:
                    track_figures(tracker, one.folder, one.options, evaluation.rows[EMBEDDING])
        for size in smaller:
            part = replace(evaluation, rows={EMBEDDING: evaluation.rows[cut_row(size)]})
            found[size].setdefault(f"{one.variant}{CUT}", []).append(part)
        whole = {name: row for name, row in evaluation.rows.items() if name not in rows}
        references = references or replace(evaluation, rows=whole)
        found[one.dimension][one.variant].append(evaluation)
    assert references is not None

    main, *others = sizes
    comparison = Comparison(found[main], references, EMBEDDING, main, {size: found[size] for size in others})
    write_tables(comparison, out)
    write_pictures(comparison, shown, out)
    (_, ours), *rest = shown.items()
    beside = [(name.partition(",")[0], run.embeddings) for name, run in rest]
    page = write_run_gallery(
        ours,
        beside[0] if beside else ours.frozen,
        table=comparison.table(),
        note=sheet_note(chosen),
        path=out / GALLERY,
    )
    write_report(comparison, plan, out, title=f"{dataset.info.name}: {len(chosen)} losses, {seeds} runs each")
    return Compared(comparison, page, plan)


def check_variants(task: Task, names: Iterable[str]) -> None:
    """Refuse a name that is none of the task's variants."""
    for name in names:
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {quoted(task.variants)}.")


def write_tables(comparison: Comparison, out: Path) -> None:
    """Write comparison.json and table.md."""
    write_json(out / "comparison.json", comparison.to_json())
    with atomic_file(out / "table.md") as temporary:
        temporary.write_text(f"{comparison.markdown()}\n\n{comparison.notes()}\n", encoding="utf-8")


def quoted(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)
