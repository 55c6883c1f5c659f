"""Training on a prepared dataset: from its folder to a run folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, overload

from cml import distances, losses, sampling
from cml.data.augmentation import stored_size
from cml.data.images import Images, native_size
from cml.data.masks import MaskFault, check_size
from cml.data.prepared import PreparedDataset, Split
from cml.distances.stored_matrix import through_matrix
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
    twins = None
    if config.flip == "image":
        if mirror is None:
            raise UserError(f"The task {task!r} cannot mirror its labels; set 'flip' to list or none.")
        both = encode(distance, dataset, "train", mirror)
        labels, twins = both[: len(items)], both[len(items) :]
    else:
        labels = encode(distance, dataset, "train")
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
    if twins is None:
        rows = sampling.registry.make(config.sampler).batch_size
        distance, labels = through_matrix(distance, labels, blocks=config.steps, rows=rows)
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


def encode(
    distance: distances.LabelDistance,
    dataset: PreparedDataset,
    role: str,
    mirror: Callable[[Any], Any] | None = None,
) -> distances.Labels:
    """Encode the labels of a role; an error names the item.

    Args:
        distance: The label distance.
        dataset: The dataset.
        role: train, query or gallery.
        mirror: Mirrors a label. When given, the labels of the mirrored images follow those of the images: packed
            together, so that both have arrays of one shape.

    Raises:
        DataError: a label is not of the kind that the label distance takes, or a mask is not as large as its image.
    """
    split = dataset.split(role)
    where = f"{dataset.folder}, role {role}, item "
    try:
        encoded = distance.encode(split.labels if mirror is None else _WithMirrored(split.labels, mirror))
    except distances.LabelError as error:
        item = split.item_ids[error.position % len(split)]
        raise DataError(f"{where}{item!r}: its {dataset.info.label_column} {error.fault}") from None
    masks = [row for row, label in enumerate(split.labels) if isinstance(label, Path)]
    with ThreadPoolExecutor(2) as pool:
        for row, fault in zip(masks, pool.map(lambda row: _size_fault(split, row), masks), strict=True):
            if fault is not None:
                raise DataError(f"{where}{split.item_ids[row]!r}: its mask {split.labels[row]} {fault}.")
    return encoded


class _WithMirrored(Sequence[Any]):
    """N labels, then the N mirrored ones, each made when it is asked for: masks are large."""

    def __init__(self, labels: Sequence[Any], mirror: Callable[[Any], Any]) -> None:
        self._labels, self._mirror = labels, mirror

    def __len__(self) -> int:
        return 2 * len(self._labels)

    @overload
    def __getitem__(self, position: int) -> Any: ...  # noqa: ANN401 - a label of any form

    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...

    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[one] for one in range(len(self))[position]]
        position = range(len(self))[position]
        half = len(self._labels)
        return self._labels[position] if position < half else self._mirror(self._labels[position - half])


def _size_fault(split: Split, row: int) -> str | None:
    try:
        check_size(native_size(split.labels[row]), split.paths[row])
    except MaskFault as fault:
        return str(fault)
    return None
