"""Training a task on a prepared dataset into a run folder, with its loss curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml import distances, tasks
from cml.data.prepared import PreparedDataset
from cml.distances.dataset_labels import encode
from cml.task import Task
from cml.training.config import TrainConfig, with_options

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks
    from cml.runs.run import Run
    from cml.trackers import Tracker
    from cml.training.callbacks import Callback
    from cml.training.loop import Trained


def train(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    config: TrainConfig | None = None,
    resume: bool = False,
    tracker: str | Tracker | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Any,  # noqa: ANN401 - the fields of TrainConfig
) -> Run:
    """Train an embedding on a prepared dataset into a run folder, as ``cml train`` does.

    Args:
        task: The task, or its name: "value", "pose", ..
        data: The prepared dataset or its folder.
        out: Run folder.
        config: All options of training; the task's recipe when not given.
        resume: Continue the run in ``out``.
        tracker: An experiment tracker that follows the run: tensorboard, wandb, mlflow, trackio, or one of your own.
        callbacks: Called after steps, validations, checkpoints and at the end; they may end the run.
        quiet: No progress bar.
        **options: Any option of ``TrainConfig`` by its name; it goes before that of ``config``.

    Returns:
        The finished run.

    Raises:
        UserError: options, dataset or run folder that do not fit.

    Example:
        >>> run = cml.train("value", "data/mine", "runs/mine", freeze_backbone=True, steps=20,
        ...                 sampler="random(batch_size=16)", quiet=True)
        >>> run
        Run('runs/mine', log-ratio, Model(efficientnet-lite0, 224 x 224 pixels -> 128 numbers, L2-normalised))
        >>> list(run.evaluate().rows)
        ['embedding', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    from cml.processes.join import joined
    from cml.runs.run import open_run
    from cml.training.callbacks import with_tracker

    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    chosen = options_for(task, config, options)
    with joined(chosen.device) as ranks:
        train_task(
            task,
            dataset,
            chosen,
            Path(out),
            resume=resume,
            callbacks=with_tracker(callbacks, tracker),
            quiet=quiet,
            ranks=ranks,
        )
    return open_run(out, data=dataset.folder, device=chosen.device)


def options_for(task: Task, config: TrainConfig | None, options: Mapping[str, Any]) -> TrainConfig:
    """The options of a run on a task: those named, then ``config`` or else the task's recipe.

    A frozen backbone sees every image once, as it is: with ``freeze_backbone`` the recipe's mirroring does not apply.
    """
    if config is None and options.get("freeze_backbone") and "flip" not in options:
        return with_options(replace(task.recipe, flip="none"), options)
    return with_options(task.recipe if config is None else config, options)


def train_task(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train a task's embedding into a run folder, with its loss curve.

    Raises:
        UserError: options, dataset or run folder that do not fit.
    """
    from cml.training.begin import train_run

    items, mirror = dataset.split("train"), task.mirror if config.flip == "image" else None
    distance = distances.registry.make(task.label_distance(config, dataset.info)).fit(items.labels)
    trained, _ = train_run(
        items.paths,
        encode(distance, dataset, "train", None if mirror is None else lambda label: mirror(label, dataset.info)),
        distance,
        config,
        task=task.name,
        dataset=dataset,
        out=out,
        resume=resume,
        callbacks=callbacks,
        quiet=quiet,
        ranks=ranks,
    )
    return trained
