"""Training on a prepared dataset: from its folder to a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cml import distances, losses
from cml.data.augmentation import stored_size
from cml.data.images import Images
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.models.device import pick_device
from cml.models.embedding import EmbeddingModel
from cml.models.frozen import frozen_features
from cml.registry import Choice
from cml.training import run_folder
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig
from cml.training.loop import Trained, Validate, model_config, train


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

    Raises:
        UserError: options, labels or a run folder that do not fit.
    """
    items = dataset.split("train")
    distance = distances.registry.make(label_distance).fit(items.labels)
    labels = encode(distance, dataset, "train")
    twins = None
    if config.flip == "image":
        if mirror is None:
            raise UserError(f"The task {task!r} cannot mirror its labels; set 'flip' to list or none.")
        twins = distance.encode([mirror(label) for label in items.labels])
    images = Images(items.paths, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    shape = model_config(config, losses.registry.make(config.loss))
    run = run_folder.RunConfig(
        task=task,
        dataset=str(dataset.folder.resolve()),
        dataset_fingerprint=dataset.fingerprint,
        train=config,
        model=shape,
        label_distance=str(Choice(distance.name, distance.settings())),
    )
    run_folder.start(out, run, resume=resume)
    features = None
    if config.freeze_backbone:
        features = frozen_features(EmbeddingModel(shape).to(pick_device(config.device)), items.paths)
    return train(
        TrainingData(images, labels, distance, twins),
        config,
        out=out,
        resume=resume,
        validate=validate,
        features=features,
        quiet=quiet,
    )


def encode(distance: distances.LabelDistance, dataset: PreparedDataset, role: str) -> distances.Labels:
    """Encode the labels of a role; an error names the item.

    Raises:
        DataError: a label is not of the kind that the label distance takes.
    """
    split = dataset.split(role)
    try:
        return distance.encode(split.labels)
    except distances.LabelError as error:
        where = f"{dataset.folder}, role {role}, item {split.item_ids[error.position]!r}"
        raise DataError(f"{where}: its {dataset.info.label_column} {error.fault}") from None
