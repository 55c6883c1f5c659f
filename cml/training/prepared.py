"""Training on a prepared dataset: from its folder to a run folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cml import distances
from cml.data.prepared import PreparedDataset
from cml.distances.dataset_labels import encode
from cml.processes.ranks import Ranks
from cml.training.begin import Origin, train_run
from cml.training.config import TrainConfig
from cml.training.loop import Trained


def train_prepared(
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    task: str,
    label_distance: str,
    mirror: Callable[[Any], Any] | None = None,
    resume: bool = False,
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
        quiet: No progress bar.
        ranks: See ``loop.train``.

    Raises:
        UserError: options, labels or a run folder that do not fit.
    """
    items = dataset.split("train")
    distance = distances.registry.make(label_distance).fit(items.labels)
    labels = encode(distance, dataset, "train", mirror if config.flip == "image" else None)  # then twins follow
    trained, _ = train_run(
        items.paths,
        labels,
        distance,
        config,
        origin=Origin(task, str(dataset.folder.resolve()), dataset.fingerprint),
        out=out,
        resume=resume,
        quiet=quiet,
        ranks=ranks,
    )
    return trained
