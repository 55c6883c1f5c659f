"""``cml demo [TASK]``: from nothing to a comparison and a gallery in three minutes, on drawn data, without network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cml import tasks
from cml.command_line.options import parse, pick, print_json, say
from cml.training.config import Precision, TrainConfig

if TYPE_CHECKING:
    from cml.data.prepared import DatasetInfo

VARIANTS = ("log-ratio", "binary triplet, threshold")
FIRST = "pose"  # the task of a bare ``cml demo``
_PIXELS = 64 * 64  # that the small network sees of a picture


@dataclass(frozen=True)
class Demo:
    """Train the log-ratio loss and binary-threshold triplets on drawn pictures, and compare what they retrieve."""

    out: Path = Path("runs/demo")
    """Folder for the drawn datasets, the runs and the gallery."""
    steps: int = 350
    """Training steps of each loss."""
    count: int | None = None
    """Pictures drawn; as many as the data source draws by itself when not given."""
    seeds: int = 1
    """Runs of each loss, with seeds 0, 1, ..; with 2 and more the table has intervals over seeds."""
    precision: Precision = "float32"
    """bfloat16 runs the network under autocast: about twice as fast on processors that have it, slower on others."""
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes; those named above when none are given. The gallery shows
    the first, beside the first binary one."""
    json: bool = False
    """Print the result as JSON."""


def run(arguments: Sequence[str]) -> None:
    """Draw, train both, evaluate, print the table, write the gallery."""
    from cml import data_prep
    from cml.runs.compare import run_comparison
    from cml.runs.gallery import write_run_gallery

    every = (tasks.get(name) for name in tasks.names())
    known = {task.name: task.summary for task in every if task.sample}
    bare = not arguments or arguments[0].startswith("-")
    name, rest = (FIRST, arguments) if bare else pick(arguments, "task", known, "cml demo")
    description = f"{Demo.__doc__} cml demo TASK, with TASK one of {', '.join(known)}; without one, {FIRST}."
    options = parse(Demo, rest, prog=f"cml demo {name}", description=description)
    task = tasks.get(name)
    began = perf_counter()
    say(f"1/3 drawing {task.sample}")
    settings: dict[str, Any] = {} if options.count is None else {"count": options.count}
    dataset = data_prep.get(task.sample, **settings).prepare(options.out / task.sample)
    variants = options.variants or VARIANTS
    of_seeds = f", {options.seeds} seeds each" if options.seeds > 1 else ""
    say(f"2/3 training {', '.join(variants)} with the same network and budget{of_seeds}")
    config = replace(small_config(options.steps, task=name, info=dataset.info), precision=options.precision)
    compared = run_comparison(
        task, dataset, config, options.out / f"{task.sample}-runs", variants=variants, seeds=options.seeds
    )
    comparison = compared.comparison
    say("3/3 writing the gallery")
    (_, ours), *others = compared.shown.items()  # the first variant, and the first binary one if there is any
    beside = [(name.partition(",")[0], baseline.embeddings) for name, baseline in others]
    page = write_run_gallery(ours, beside[0] if beside else None, table=comparison.table())
    seconds = perf_counter() - began
    if options.json:
        print_json({**comparison.to_json(), "gallery": str(page), "seconds": seconds})
        return
    print(comparison.markdown())
    print(f"\n{comparison.notes()} {seconds:.0f} s in all.")
    print(f"look:  {page.resolve()}")
    print("next:  your own images and a CSV with one number each:")
    print("       cml prepare folder --images DIR --labels labels.csv --label-columns age --out data/mine")
    print("       cml train value --data data/mine --out runs/mine --freeze-backbone --steps 300")


def small_config(steps: int, *, task: str = FIRST, info: DatasetInfo | None = None) -> TrainConfig:
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
        backbone="small-cnn",
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
