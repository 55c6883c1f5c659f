"""The demonstration: a comparison and a retrieval report from nothing, on drawn data, without network."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cml import data_prep, tasks
from cml.comparing.rows import rows_of
from cml.comparing.train_comparison import CompareOptions, ComparisonResult, run_comparison
from cml.console.messages import resume_hint, say
from cml.data.dataset_info import DatasetInfo
from cml.processes.exactness import Precision
from cml.settings import check_whole
from cml.storage.safe_paths import check_no_link
from cml.training.config import TrainConfig

VARIANTS = ("log-ratio", "binary triplet, threshold")
_NETWORKS = {"caption": "small-cnn(grid=1, layers=4)"}  # a caption says what is in a picture, not where
_PIXELS = 64 * 64  # that the small network sees of a picture


@resume_hint()
def demonstrate(
    task: str,
    out: Path,
    *,
    steps: int = 350,
    count: int | None = None,
    train: int | None = None,
    seeds: int = 1,
    precision: Precision = "float32",
    backbone: str = "",  # the network, trained from scratch; "" for a small one
    variants: Sequence[str] = (),
) -> ComparisonResult:  # the comparison, written to ``out``
    """Draw a task's pictures, train some of its variants with a small network, and compare what they retrieve.

    A call that was cut off is continued by the same call.
    """
    check_whole("steps", steps)  # before anything is drawn
    demo_task = tasks.get(task)
    say(f"1/2 drawing {demo_task.sample}")
    check_no_link(out, f"{demo_task.sample}-runs")
    sizes = {name: size for name, size in (("count", count), ("train", train)) if size is not None}
    dataset = data_prep.get(demo_task.sample, **sizes).prepare(out / demo_task.sample)
    variants = variants or VARIANTS
    of_seeds = f", {seeds} seeds each" if seeds > 1 else ""
    say(f"2/2 training {', '.join(variants)} with the same network and budget{of_seeds}")
    config = make_small_config(steps, task=task, info=dataset.info)
    config = replace(config, precision=precision, backbone=backbone or config.backbone)
    rows = rows_of(demo_task, config, variants, (), dataset)
    place = out / f"{demo_task.sample}-runs"
    return run_comparison(demo_task, dataset, rows, place, CompareOptions(seeds), dimension=config.dimension)


def make_small_config(
    steps: int,
    *,
    task: str = "pose",
    info: DatasetInfo | None = None,  # the dataset's info; None for pictures of 64 x 64 pixels
) -> TrainConfig:  # the options. Pictures are scaled down to 64 x 64 pixels in area, in their own proportions
    """Make a recipe for a small network that is trained from scratch on small pictures."""
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
