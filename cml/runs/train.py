"""Training a task on a prepared dataset into a run folder, with its loss curve."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from cml.task import Task

if TYPE_CHECKING:
    from cml.data.prepared import PreparedDataset
    from cml.processes.ranks import Ranks
    from cml.training.config import TrainConfig
    from cml.training.loop import Trained


def train_task(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train a task's embedding into a run folder, with its loss curve.

    Raises:
        UserError: options, dataset or run folder that do not fit.
    """
    from cml.reporting.curves import write_curves
    from cml.training.prepared import train_prepared
    from cml.training.validation import held_out_score

    trained = train_prepared(
        dataset,
        config,
        out,
        task=task.name,
        label_distance=task.label_distance(config, dataset.info),
        mirror=None if task.mirror is None else lambda label: task.mirror(label, dataset.info),  # type: ignore[misc]
        resume=resume,
        validate=functools.partial(held_out_score, ranks=ranks),
        quiet=quiet,
        ranks=ranks,
    )
    if ranks is None or ranks.first:
        write_curves(out / "loss.png", trained.metrics)
    return trained
