"""Training on one's own arrays, without files or a command line."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml import distances, losses
from cml.data.augmentation import stored_size
from cml.data.images import Images, UInt8
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.processes.join import joined
from cml.registry import Choice
from cml.training import run_folder
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig
from cml.training.loop import model_config, train
from cml.training.run_config import RunConfig


def fit(
    images: UInt8 | Sequence[Path],
    labels: Sequence[Any] | NDArray[Any],
    config: TrainConfig | None = None,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> EmbeddingModel:
    """Train an embedding of ``images`` whose distances mirror the distances of ``labels``.

    A script that calls this may be started by torchrun: its processes then share every batch.

    Args:
        images: (N, H, W, 3) uint8, or N paths.
        labels: N labels of the kind that ``config.label_distance`` takes; numbers or vectors by default.
        config: All options; None for the defaults.
        out: Run folder for checkpoints and the model; None keeps nothing.
        resume: Continue the run in ``out``.
        quiet: No progress bar.

    Returns:
        The trained model: ``model.embed(images)`` gives (N, D) float32.

    Raises:
        UserError: images, labels or options that do not fit each other.

    Example:
        >>> import numpy as np
        >>> levels = np.linspace(0, 255, 40)
        >>> images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
        >>> config = TrainConfig(
        ...     backbone="small-cnn", weights="none", image_size=(16, 16), steps=2, workers=0,
        ...     sampler="random(batch_size=20)",
        ... )
        >>> fit(images, levels, config, quiet=True).embed(images).shape
        (40, 128)
    """
    config = TrainConfig() if config is None else config
    if len(images) != len(labels):
        raise UserError(f"There must be one label an image. Got {len(images)} images and {len(labels)} labels instead.")
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    distance = distances.registry.make(config.label_distance).fit(labels)
    encoded = distance.encode(labels)
    if config.flip == "image":
        raise UserError("Mirroring image by image needs a task that mirrors the labels; set 'flip' to list or none.")
    stored = Images(images, stored_size(config.image_size, config.crop), cache_bytes=config.cache_bytes)
    folder = None if out is None else Path(out)
    data = TrainingData(stored, encoded, distance)
    with joined(config.device) as ranks, contextlib.ExitStack() as held:
        if folder is not None and ranks.first:
            run = RunConfig(
                task="",
                dataset="",
                dataset_fingerprint=hashlib.sha256(encoded.fingerprint().encode()).hexdigest(),
                train=config,
                model=model_config(config, losses.registry.make(config.loss)),
                label_distance=str(Choice(distance.name, distance.settings())),
            )
            held.enter_context(run_folder.begun(folder, run, resume=resume))
        ranks.wait()
        return train(data, config, out=folder, resume=resume, quiet=quiet, ranks=ranks).model
