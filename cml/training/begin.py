"""From labelled images to a run: everything before the first step, for arrays and for prepared datasets."""

import contextlib
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import nn

from cml import losses, plugins, sampling
from cml.data.augmentation import stored_size
from cml.data.images import Images
from cml.data.inputs import ImageSource
from cml.data.prepared import PreparedDataset
from cml.distances.jobs.stored_matrix import through_matrix
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.registry import Choice
from cml.sampling.sampler import Sampler, suited_batch
from cml.training import run_folder
from cml.training.batches import TrainingData, items_left
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig
from cml.training.loop import Trained, model_config, train
from cml.training.run_config import RunConfig
from cml.training.validation import Score


def train_run(
    images: ImageSource,
    labels: Labels,
    distance: LabelDistance,
    config: TrainConfig,
    *,
    loss: Loss | None = None,
    backbone: nn.Module | Backbone | None = None,
    task: str = "",
    dataset: PreparedDataset | None = None,
    out: Path | None = None,
    resume: bool = False,
    shrink: bool = False,
    score: Score | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Trained, RunConfig]:
    """Train on labelled images, optionally in a run folder.

    Args:
        images: N images.
        labels: Their N labels, encoded; for ``flip="image"`` those of the mirrored images follow.
        distance: The label distance that encoded them.
        config: All options.
        loss: As for ``loop.train``.
        backbone: As for ``loop.train``.
        task: Name of the task, "" for a run on arrays.
        dataset: The prepared dataset of the images; None for arrays.
        out: Run folder, begun or continued; None for none.
        resume: Continue the run in ``out`` if it was begun.
        shrink: If the batch is larger than the data, make it smaller with a warning, instead of an error.
        score: As for ``loop.train``.
        callbacks: As for ``loop.train``.
        quiet: No progress bar.
        ranks: As for ``loop.train``.

    Returns:
        The result of training, and the content of config.json.

    Raises:
        UserError: options, labels or run folder do not fit.
    """
    ranks = Ranks(device=pick_device(config.device)) if ranks is None else ranks
    count = len(images)
    if config.flip == "image" and len(labels) < 2 * count:
        who = f"The task {task!r} cannot mirror its labels" if task else "No mirrored labels are given"
        raise UserError(f"{who}; set 'flip' to list or none.")
    if shrink:
        config = suited(config, items_left(config, count), say=ranks.first)
    sampler = sampling.registry.make(config.sampler)
    label_distance = str(Choice(distance.name, distance.settings()))
    own_fingerprint = hashlib.sha256(labels.fingerprint().encode()).hexdigest()
    run = RunConfig(
        task=task,
        dataset="" if dataset is None else str(dataset.folder.resolve()),
        dataset_fingerprint=own_fingerprint if dataset is None else dataset.fingerprint,
        train=config,
        model=model_config(config, losses.registry.make(config.loss) if loss is None else loss),
        label_distance=label_distance,
        made_of={"items": count, "labels": own_fingerprint} if dataset is None else dataset.made_of,
        plugins=plugins.needed(task, label_distance, config.loss, config.sampler, config.backbone),
    )
    sampler.check_count(items_left(config, count))  # before there is an empty run folder
    stored = Images(images, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    with contextlib.ExitStack() as held:
        if out is not None and ranks.first:
            held.enter_context(run_folder.begun(out, run, resume=resume))
        ranks.wait()
        distance, labels = through_matrix(
            distance,
            labels,
            blocks=config.steps,
            rows=sampler.batch_size,
            all_pairs=sampler.neighbors > 0,
            quiet=quiet or not ranks.first,
        )
        data = TrainingData(stored, labels[:count], distance, labels[count:] if len(labels) > count else None)
        trained = train(
            data,
            config,
            loss=loss,
            backbone=backbone,
            out=out,
            resume=resume,
            score=score,
            callbacks=callbacks,
            quiet=quiet,
            ranks=ranks,
        )
        return trained, run


def suited(config: TrainConfig, items: int, *, say: bool = True) -> TrainConfig:
    """The options, with a smaller batch and a warning if the sampler's is larger than the data."""
    sampler = sampling.registry.make(config.sampler)
    if items >= sampler.batch_size or items < 2:
        return config
    smaller = _smaller(config.sampler, suited_batch(items))
    if say:
        warnings.warn(
            f"A batch takes {sampler.batch_size} items, but there are {items}: the sampler is {smaller} instead of "
            f"{config.sampler}.",
            stacklevel=4,
        )
    return replace(config, sampler=smaller)


def _smaller(sampler: str, batch_size: int) -> str:
    """The sampler with another batch size; the random one if its other settings do not allow that."""
    choice = Choice.parse(sampler)
    smaller = str(Choice(choice.name, {**choice.settings, "batch_size": batch_size}))
    try:
        made: Sampler = sampling.registry.make(smaller)
        made.check_count(batch_size)
    except UserError:
        return str(Choice("random", {"batch_size": batch_size}))
    return smaller
