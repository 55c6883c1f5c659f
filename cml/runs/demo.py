"""The demonstration: a comparison and a gallery from nothing, on drawn data, without network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cml import data_prep, tasks
from cml.command_line.options import going_on, say
from cml.storage.safe_paths import check_no_link
from cml.training.config import Precision, TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import DatasetInfo
    from cml.retrieval.comparison import Comparison

VARIANTS = ("log-ratio", "binary triplet, threshold")
_NETWORKS = {"caption": "small-cnn(grid=1, layers=4)"}  # a caption says what is in a picture, not where
_PIXELS = 64 * 64  # that the small network sees of a picture


@dataclass(frozen=True)
class Demonstrated:
    """What the demonstration made.

    Attributes:
        comparison: The figures.
        gallery: The page.
        seconds: How long it took.
    """

    comparison: Comparison
    gallery: Path
    seconds: float


@going_on()
def demonstrate(
    task: str,
    out: Path,
    *,
    steps: int = 350,
    count: int | None = None,
    train: int | None = None,
    seeds: int = 1,
    precision: Precision = "float32",
    backbone: str = "",
    variants: Sequence[str] = (),
) -> Demonstrated:
    """Draw a task's pictures, train variants on them with a small network, evaluate, write the gallery.

    Args:
        task: Name of a task that has a source of drawn pictures.
        out: Folder for the drawn dataset, the runs and the gallery; a call cut off goes on from there.
        steps: Training steps of each variant.
        count: Pictures drawn; as many as the source draws by itself when None.
        train: Of these, pictures for training; two thirds when None.
        seeds: Runs of each variant.
        precision: See ``TrainConfig``.
        backbone: The network, trained from scratch; that of ``small_config`` when empty.
        variants: Names of the task's variants, ``VARIANTS`` when none are given. The gallery shows the first beside
            the first binary one.

    Raises:
        UserError: unknown variant, or runs in ``out`` with other options.
    """
    from cml.runs.comparison import run_comparison

    chosen = tasks.get(task)
    began = perf_counter()
    say(f"1/2 drawing {chosen.sample}")
    given = {"count": count, "train": train}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    check_no_link(out, f"{chosen.sample}-runs")
    dataset = data_prep.get(chosen.sample, **settings).prepare(out / chosen.sample)
    variants = variants or VARIANTS
    of_seeds = f", {seeds} seeds each" if seeds > 1 else ""
    say(f"2/2 training {', '.join(variants)} with the same network and budget{of_seeds}")
    config = replace(small_config(steps, task=task, info=dataset.info), precision=precision)
    config = replace(config, backbone=backbone or config.backbone)
    compared = run_comparison(chosen, dataset, config, out / f"{chosen.sample}-runs", variants=variants, seeds=seeds)
    return Demonstrated(compared.comparison, compared.gallery, perf_counter() - began)


def small_config(steps: int, *, task: str = "pose", info: DatasetInfo | None = None) -> TrainConfig:
    """A task's recipe for small pictures and a small network trained from scratch.

    Args:
        steps: Training steps.
        task: Name of the task.
        info: Of the dataset: its pictures' height and width are kept, scaled down if they have over 64 x 64 pixels.
    """
    height, width = (64, 64) if info is None else info.details.get("image_size", (64, 64))
    scale = min(1.0, math.sqrt(_PIXELS / (height * width)))
    recipe = tasks.get(task).recipe
    return replace(
        recipe,
        backbone=_NETWORKS.get(task, "small-cnn(layers=4)"),
        weights="none",
        image_size=(round(scale * height), round(scale * width)),
        crop=1.0,
        scale_jitter=0.05 if recipe.scale_jitter else 0.0,  # of small pictures: about 3 and 2 pixels
        shift_jitter=0.03 if recipe.shift_jitter else 0.0,
        # many small batches: on the drawn sets better than few large ones of the same cost
        sampler="random(batch_size=60)",
        steps=steps,
        learning_rate=2e-3,
        warmup=20,
        weight_decay=1e-4,
    )
