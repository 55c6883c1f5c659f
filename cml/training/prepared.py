"""Training on a prepared dataset: from its folder to a run folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cml import distances, losses, sampling
from cml.data.augmentation import stored_size
from cml.data.images import Images
from cml.data.prepared import PreparedDataset
from cml.distances.dataset_labels import encode
from cml.distances.jobs.stored_matrix import through_matrix
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.models.frozen import frozen_features
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.registry import Choice
from cml.training import run_folder
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig
from cml.training.loop import Trained, Validate, model_config, train
from cml.training.run_config import RunConfig


def train_prepared(
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    task: str,
    label_distance: str,
    mirror: Callable[[Any], Any] | None = None,
    resume: bool = False,
    validate: Validate | None = None,
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train on the ``train`` items of a prepared dataset.

    Args:
        dataset: The dataset.
        config: All options.
        out: Run folder.
        task: Name of the task, for the run's config.
        label_distance: The label distance with the settings that the dataset decides.
        mirror: Mirrors a raw label; needed for ``flip="image"``.
        resume: Continue the run in ``out`` if it was begun.
        validate: See ``loop.train``.
        quiet: No progress bar.
        ranks: See ``loop.train``.

    Raises:
        UserError: options, labels or a run folder that do not fit.
    """
    ranks = Ranks(device=pick_device(config.device)) if ranks is None else ranks
    items = dataset.split("train")
    sampler = sampling.registry.make(config.sampler)
    distance = distances.registry.make(label_distance).fit(items.labels)
    if config.flip == "image" and mirror is None:
        raise UserError(f"The task {task!r} cannot mirror its labels; set 'flip' to list or none.")
    labels = encode(distance, dataset, "train", mirror if config.flip == "image" else None)  # then twins follow
    images = Images(items.paths, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    shape = model_config(config, losses.registry.make(config.loss))
    run = RunConfig(
        task=task,
        dataset=str(dataset.folder.resolve()),
        dataset_fingerprint=dataset.fingerprint,
        train=config,
        model=shape,
        label_distance=str(Choice(distance.name, distance.settings())),
    )
    sampler.check_count(len(items))  # before there is a run folder in which nothing was trained
    with contextlib.ExitStack() as held:
        if ranks.first:
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
        twins = labels[len(items) :] if config.flip == "image" else None
        features = None
        if config.freeze_backbone and config.weights != "none":  # a fresh backbone is the run's own, made by its seed
            frozen = EmbeddingModel(shape).to(ranks.device)
            features = ranks.rows(len(items), lambda rows: frozen_features(frozen, items.paths[rows]))
        return train(
            TrainingData(images, labels[: len(items)], distance, twins),
            config,
            out=out,
            resume=resume,
            validate=validate,
            features=features,
            quiet=quiet,
            ranks=ranks,
        )
