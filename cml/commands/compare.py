"""``cml compare TASK --data DIR --out DIR``: several losses, one network, one budget, several seeds; table and figures.

Every run is kept; a comparison cut off and started again trains and evaluates only what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tasks
from cml.commands import parse, pick, print_json, say
from cml.commands.comparison_pictures import sheet_variants, write_pictures
from cml.commands.comparison_runs import finished, kept_evaluation, planned
from cml.commands.evaluate import EMBEDDING, evaluate_run
from cml.commands.train import recipe_for, train_task
from cml.commands.trained_run import TrainedRun
from cml.errors import UserError
from cml.files import atomic_file, write_json
from cml.retrieval.comparison import Comparison
from cml.retrieval.results import Evaluation
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset


@dataclass(frozen=True)
class Compare:
    """Train several losses with one budget and compare what they retrieve."""

    data: Path
    """Folder of the prepared dataset."""
    out: Path
    """Folder for the runs, the table and the figures."""
    config: TrainConfig
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes; all when neither they nor losses are given."""
    losses: tuple[str, ...] = ()
    """Losses to compare, each as --loss takes it: a row each, after the variants that are named."""
    seeds: int = 3
    """Runs a variant, with seeds 0, 1, ..; intervals over seeds need at least 2."""
    dimensions: tuple[int, ...] = ()
    """Further sizes of the embedding to train every variant at, as in 16 32 64, for the figure over the dimension."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class Compared:
    """A finished comparison.

    Attributes:
        comparison: Its figures.
        shown: The variants that the sheet shows, to their runs of seed 0 at the dimension of the table.
    """

    comparison: Comparison
    shown: Mapping[str, TrainedRun]


def run(arguments: Sequence[str]) -> None:
    """Compare, write table and figures, print the table."""
    import tyro

    from cml.data.prepared import PreparedDataset

    others = tasks.comparisons()
    known = {name: tasks.get(name).summary for name in tasks.registry().names()}
    known |= {name: (others.entry(name).__doc__ or "").partition("\n")[0] for name in others.names()}
    name, rest = pick(arguments, "task", known, "cml compare")
    if name in others.names():
        others.entry(name)(rest)
        return
    task = tasks.get(name)
    recipe = recipe_for(task, rest)
    defaults = Compare(tyro.MISSING, tyro.MISSING, recipe)
    description = f"Compare losses on {task.summary}. Variants: {_quoted(task.variants)}."
    options = parse(Compare, rest, prog=f"cml compare {name}", description=description, default=defaults)
    if options.config.loss != task.recipe.loss:
        raise UserError(
            "In a comparison the rows set the loss: leave --loss out and choose with --variants and --losses."
        )
    dataset = PreparedDataset.open(options.data)
    task = with_losses(task, options.losses)
    variants = (*options.variants, *(loss for loss in options.losses if loss not in options.variants))
    comparison = compare(
        task,
        dataset,
        options.config,
        options.out,
        variants=variants or None,
        seeds=options.seeds,
        dimensions=options.dimensions,
    ).comparison
    if options.json:
        print_json(comparison.to_json())
        return
    print(comparison.markdown())
    print(f"\n{comparison.notes()}")
    pictures = ", ".join(sorted(path.name for path in options.out.glob("*.png")))
    print(f"In {options.out}: comparison.json with all figures, table.md, {pictures}")


def with_losses(task: tasks.Task, losses: Sequence[str]) -> tasks.Task:
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
    task: tasks.Task,
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
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {_quoted(task.variants)}.")
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


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
