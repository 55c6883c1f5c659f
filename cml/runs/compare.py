"""Several losses, one network, one budget, several seeds: the runs, the table and the figures.

Every run is kept; a comparison cut off and started again trains and evaluates only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cml import distances, tasks
from cml.command_line.options import going_on, say
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.retrieval.comparison import Comparison
from cml.retrieval.results import Evaluation
from cml.runs.evaluate import evaluate_run
from cml.runs.gallery import GALLERY, write_run_gallery
from cml.runs.measures import EMBEDDING
from cml.runs.pictures import sheet_variants, write_pictures
from cml.runs.planned import finished, kept_evaluation, planned
from cml.runs.train import options_for, train_task
from cml.runs.trained_run import TrainedRun
from cml.storage.atomic import atomic_file, write_json
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.training.config import TrainConfig


def compare(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    variants: Sequence[str] | None = None,
    losses: Sequence[str] = (),
    seeds: int = 3,
    dimensions: Sequence[int] = (),
    recall_within: float = 0.0,
    config: TrainConfig | None = None,
    **options: Any,  # noqa: ANN401 - the fields of TrainConfig
) -> Comparison:
    """Train several losses with one network and budget, several seeds each, and compare what they retrieve.

    The runs, comparison.json, table.md, gallery.html and the figures lie in ``out``. A finished run found there is not
    trained again.

    Args:
        task: The task, or its name: "value", "pose", ..
        data: The prepared dataset or its folder.
        out: Folder of the comparison.
        variants: Names among the task's variants; all of them when neither they nor ``losses`` are given.
        losses: Losses to compare, each as the command line takes it: a row each, after the variants.
        seeds: Runs a row, with seeds 0, 1, ..; intervals over seeds need at least 2.
        dimensions: Further dimensions of the embedding to train every row at.
        recall_within: See ``cml.Run.evaluate``.
        config: All options of training; the task's recipe when not given.
        **options: Any option of ``TrainConfig`` by its name; it goes before that of ``config``.

    Returns:
        The figures, with ``rows()``, ``markdown()`` and ``to_pandas()``.

    Raises:
        UserError: unknown variant, loss or option, or a run in ``out`` with other options or on another dataset.

    Example:
        >>> found = cml.compare("value", "data/mine", "runs/losses", losses=["log-ratio", "cosent(scale=2.0)"],
        ...                     seeds=1, freeze_backbone=True, steps=20, sampler="random(batch_size=16)")
        >>> list(found.rows())
        ['log-ratio', 'cosent(scale=2.0)', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    if "loss" in options:
        raise UserError("In a comparison the rows set the loss: leave 'loss' out and choose variants and losses.")
    task = with_losses(task, losses)
    rows = [*(variants or ()), *(loss for loss in losses if loss not in (variants or ()))]
    chosen = options_for(task, config, options)
    return run_comparison(
        task,
        dataset,
        chosen,
        Path(out),
        variants=rows or None,
        seeds=seeds,
        dimensions=dimensions,
        recall_within=recall_within,
    ).comparison


@dataclass(frozen=True)
class Compared:
    """A finished comparison.

    Attributes:
        comparison: Its figures.
        gallery: The page of what the first variant retrieves, beside the first binary one, or else the second.
    """

    comparison: Comparison
    gallery: Path


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


def _check_labels(task: Task, dataset: PreparedDataset, runs: Iterable[TrainConfig]) -> None:
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
    recall_within: float = 0.0,
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
        recall_within: See ``evaluate_run``.

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
    _check_labels(task, dataset, [one.options for one in plan if not finished(one, dataset)])
    for number, one in enumerate(plan, 1):
        check_no_link(out, *one.folder.relative_to(out).parts)
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
                evaluation = evaluate_run(trained, recall_within=recall_within, references=references is None)
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
    (_, ours), *rest = shown.items()
    beside = [(name.partition(",")[0], run.embeddings) for name, run in rest]
    page = write_run_gallery(ours, beside[0] if beside else ours.frozen, table=comparison.table(), path=out / GALLERY)
    return Compared(comparison, page)


def quoted(names: Iterable[str]) -> str:
    """Names as a message lists them."""
    return ", ".join(f'"{name}"' for name in names)
