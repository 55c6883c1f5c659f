"""``cml compare TASK --data DIR --out DIR``: several losses, one network, one budget, several seeds; a table, a figure.

Every run is kept; a comparison cut off and started again trains only what is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tasks
from cml.commands import parse, pick, print_json, say
from cml.commands.evaluate import EMBEDDING, evaluate_run
from cml.commands.train import train_task
from cml.commands.trained_run import TrainedRun
from cml.errors import UserError
from cml.files import write_json
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset
    from cml.retrieval.evaluation import Evaluation

Interval = tuple[float, float, float]  # mean and the two ends of its 95 % interval
METRICS = ("label_distance@1", "label_distance@10", "ndcg@10", "ndcg@100", "hit@10", "spearman_rho")


@dataclass(frozen=True)
class Compare:
    """Train several losses with one budget and compare what they retrieve."""

    data: Path
    """Folder of the prepared dataset."""
    out: Path
    """Folder for the runs, table.md, comparison.json and the figures."""
    config: TrainConfig
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes; all when none are given. A variant sets its loss."""
    seeds: int = 3
    """Runs a variant, with seeds 0, 1, ..; intervals over seeds need at least 2."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        rows: Method to metric to mean and 95 % interval: over seeds for trained methods (Student's t), over queries
            (bootstrap) for the references.
        unit: Unit of the label distance.
        seeds: Runs a variant.
        best_run: Run folder of seed 0 of each variant.
    """

    rows: Mapping[str, Mapping[str, Interval]]
    unit: str
    seeds: int
    best_run: Mapping[str, Path]

    def table(self) -> list[list[str]]:
        """Header and rows as text."""
        metrics = [name for name in METRICS if all(name in row for row in self.rows.values())]
        lines = [["method", *metrics]]
        for method, row in self.rows.items():
            lines.append([method, *(_interval(row[name]) for name in metrics)])
        return lines

    def markdown(self) -> str:
        """The table as Markdown."""
        head, *body = self.table()
        return "\n".join(
            ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in body)]
        )


def run(arguments: Sequence[str]) -> None:
    """Compare, write table and figures, print the table."""
    import tyro

    from cml.data.prepared import PreparedDataset

    known = {name: tasks.get(name).summary for name in tasks.registry().names()}
    name, rest = pick(arguments, "task", known, "cml compare")
    task = tasks.get(name)
    defaults = Compare(tyro.MISSING, tyro.MISSING, task.recipe)
    description = f"Compare losses on {task.summary}. Variants: {_quoted(task.variants)}."
    options = parse(Compare, rest, prog=f"cml compare {name}", description=description, default=defaults)
    if options.config.loss != task.recipe.loss:
        raise UserError("In a comparison the variants set the loss: leave --loss out and choose with --variants.")
    dataset = PreparedDataset.open(options.data)
    comparison = compare(
        task, dataset, options.config, options.out, variants=options.variants or None, seeds=options.seeds
    )
    if options.json:
        print_json(
            {method: {name: list(value) for name, value in row.items()} for method, row in comparison.rows.items()}
        )
        return
    print(comparison.markdown())
    print(f"\nlabel distance in {comparison.unit}; all figures and plots in {options.out}")


def compare(
    task: tasks.Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    variants: Sequence[str] | None = None,
    seeds: int = 3,
) -> Comparison:
    """Train every variant with every seed, evaluate, and write comparison.json, table.md and two figures into ``out``.

    Args:
        task: The task.
        dataset: Its prepared dataset.
        config: Options that all variants share.
        out: Folder; finished runs found there are kept and not trained again.
        variants: Names among ``task.variants``; None for all.
        seeds: Runs a variant.

    Raises:
        UserError: unknown variant, or a run in ``out`` with other options.
    """
    chosen = list(task.variants) if variants is None else list(variants)
    for name in chosen:
        if name not in task.variants:
            raise UserError(f"Unknown variant {name!r} of task {task.name!r}. Known: {_quoted(task.variants)}.")
    if seeds < 1:
        raise UserError(f"'seeds' must be at least 1. Got {seeds} instead.")

    found: dict[str, list[Evaluation]] = {}
    references: Evaluation | None = None
    runs: dict[str, Path] = {}
    for name in chosen:
        for seed in range(seeds):
            folder = out / _slug(name) / f"seed-{seed}"
            options = variant_config(task, config, name, seed)
            if not (folder / "model.safetensors").exists():
                say(f"{name}, seed {seed}")
            train_task(task, dataset, options, folder, resume=True)
            trained = TrainedRun.open(folder, data=dataset.folder, device=config.device)
            evaluation = evaluate_run(trained, references=references is None)
            references = references or evaluation
            write_json(folder / "evaluation.json", evaluation.to_json())
            found.setdefault(name, []).append(evaluation)
            runs.setdefault(name, folder)
    assert references is not None

    rows: dict[str, dict[str, Interval]] = {}
    for name, evaluations in found.items():
        rows[name] = {
            metric: over_seeds([evaluation.rows[EMBEDDING][metric].mean for evaluation in evaluations])
            for metric in evaluations[0].rows[EMBEDDING]
        }
    for name, row in references.rows.items():
        if name != EMBEDDING:
            rows[name] = {key: (metric.mean, metric.low, metric.high) for key, metric in row.items()}
    comparison = Comparison(rows, references.unit, seeds, runs)
    _write(comparison, out)
    return comparison


def variant_config(task: tasks.Task, config: TrainConfig, name: str, seed: int) -> TrainConfig:
    """The shared options with what the variant changes and the seed."""
    changes: dict[str, Any] = dict(task.variants[name])
    return replace(config, seed=seed, **changes)


def over_seeds(values: Sequence[float]) -> Interval:
    """Mean and 95 % interval (Student's t) of one figure a seed; no interval for a single seed."""
    from scipy import stats

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return mean, mean - half, mean + half


def _write(comparison: Comparison, out: Path) -> None:
    from cml.files import atomic_file
    from cml.reporting.curves import write_metric_curves

    rows = {method: {name: list(value) for name, value in row.items()} for method, row in comparison.rows.items()}
    write_json(out / "comparison.json", {"unit": comparison.unit, "seeds": comparison.seeds, "rows": rows})
    with atomic_file(out / "table.md") as temporary:
        temporary.write_text(comparison.markdown() + "\n", encoding="utf-8")
    for metric, label in (("label_distance", f"mean label distance@K ({comparison.unit})"), ("ndcg", "nDCG@K")):
        curves = {
            method: {int(name.partition("@")[2]): value for name, value in row.items() if name.startswith(metric + "@")}
            for method, row in comparison.rows.items()
        }
        curves = {method: points for method, points in curves.items() if points}
        write_metric_curves(out / f"{metric}.png", curves, xlabel="K", ylabel=label)


def _interval(value: Interval) -> str:
    mean, low, high = value
    digits = 3 if abs(mean) <= 1 else 2 if abs(mean) < 100 else 1
    spread = (high - low) / 2
    return f"{mean:.{digits}f}" if spread == 0 else f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
