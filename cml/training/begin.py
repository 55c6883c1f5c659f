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
from cml.sampling.sampler import suited_batch
from cml.training import run_folder
from cml.training.batches import TrainingData, items_left
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig
from cml.training.loop import Trained, model_config, train
from cml.training.run_config import RunConfig


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
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Trained, RunConfig]:
    """Train on N labelled images, optionally in a run folder; returns also the content of config.json."""
    # labels are encoded by distance, for flip="image" followed by those of the mirrored images; with shrink, a batch
    # that is larger than the data becomes smaller, with a warning
    ranks = Ranks(device=pick_device(config.device)) if ranks is None else ranks
    count, quiet = len(images), quiet or not ranks.first
    if config.flip == "image" and len(labels) < 2 * count:
        who = f"The task {task!r} cannot mirror its labels" if task else "No mirrored labels are given"
        raise UserError(f"{who}; set 'flip' to list or none.")
    if shrink:
        config = suited(config, items_left(config, count), say=ranks.first)
    sampler = sampling.registry.make(config.sampler)
    label_distance = str(Choice(distance.name, distance.settings()))
    digest = hashlib.sha256(labels.fingerprint().encode()).hexdigest()
    run = RunConfig(
        task=task,
        dataset="" if dataset is None else str(dataset.folder.resolve()),
        dataset_fingerprint=digest if dataset is None else dataset.fingerprint,
        train=config,
        model=model_config(config, losses.registry.make(config.loss) if loss is None else loss),
        label_distance=label_distance,
        made_of={"items": count, "labels": digest} if dataset is None else dataset.made_of,
        plugins=plugins.required_plugins(task, label_distance, config.loss, config.sampler, config.backbone),
    )
    sampler.check_count(items_left(config, count))  # before there is an empty run folder
    stored = Images(images, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    with contextlib.ExitStack() as held:
        if out is not None and ranks.first:
            held.enter_context(run_folder.begun(out, run, resume=resume))
        ranks.barrier()
        distance, labels = through_matrix(
            distance, labels, blocks=config.steps, rows=sampler.batch_size, all_pairs=sampler.neighbors > 0, quiet=quiet
        )
        data = TrainingData(stored, labels[:count], distance, labels[count:] if len(labels) > count else None)
        trained = train(
            data,
            config,
            loss=loss,
            backbone=backbone,
            out=out,
            resume=resume,
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
    choice, size = Choice.parse(config.sampler), suited_batch(items)
    smaller = str(Choice(choice.name, {**choice.settings, "batch_size": size}))
    try:
        sampling.registry.make(smaller).check_count(size)
    except UserError:  # its other settings do not allow that
        smaller = str(Choice("random", {"batch_size": size}))
    if say:
        warnings.warn(
            f"A batch takes {sampler.batch_size} items, but there are {items}: the sampler is {smaller} instead of "
            f"{config.sampler}.",
            stacklevel=4,
        )
    return replace(config, sampler=smaller)
