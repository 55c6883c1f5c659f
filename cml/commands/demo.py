"""``cml demo``: from nothing to a comparison and a gallery in three minutes, on drawn people, without network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

from cml.commands import parse, print_json, say
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class Demo:
    """Train the log-ratio loss and binary-threshold triplets on drawn people, and compare what they retrieve."""

    out: Path = Path("runs/demo")
    """Folder for the drawn dataset, the runs and the gallery."""
    steps: int = 250
    """Training steps of each loss."""
    count: int = 3000
    """People drawn."""
    json: bool = False
    """Print the result as JSON."""


VARIANTS = ("log-ratio", "binary triplet, threshold")


def run(arguments: Sequence[str]) -> None:
    """Draw, train both, evaluate, print the table, write the gallery."""
    import tasks
    from cml.commands.compare import compare
    from cml.commands.gallery import write_run_gallery
    from cml.commands.trained_run import TrainedRun
    from data_prep.people import People

    options = parse(Demo, arguments, prog="cml demo", description=Demo.__doc__ or "")
    began = perf_counter()
    say(f"1/3 drawing {options.count} people")
    dataset = People(count=options.count).prepare(options.out / "people")
    say("2/3 training two losses with the same network and budget")
    task = tasks.get("pose")
    config = small_config(options.steps)
    comparison = compare(task, dataset, config, options.out / "runs", variants=VARIANTS, seeds=1)
    say("3/3 writing the gallery")
    ours, baseline = (
        TrainedRun.open(comparison.best_run[name], data=dataset.folder, device="cpu") for name in VARIANTS
    )
    page = write_run_gallery(ours, ("binary triplet", baseline.embeddings), table=comparison.table())
    seconds = perf_counter() - began
    if options.json:
        rows = {method: {name: value[0] for name, value in row.items()} for method, row in comparison.rows.items()}
        print_json({"rows": rows, "gallery": str(page), "seconds": seconds})
        return
    print(comparison.markdown())
    print(f"\nlabel distance in {comparison.unit}; {seconds:.0f} s in all")
    print(f"look:  {page.resolve()}")
    print("next:  your own images and a CSV with one number each:")
    print("       cml prepare folder --images DIR --labels labels.csv --label-columns age --out data/mine")
    print("       cml train value --data data/mine --out runs/mine")


def small_config(steps: int) -> TrainConfig:
    """The pose recipe for 64 px pictures and a small network trained from scratch."""
    import tasks

    return replace(
        tasks.get("pose").recipe,
        backbone="small-cnn",
        weights="none",
        image_size=(64, 64),
        crop=1.0,
        scale_jitter=0.05,
        shift_jitter=0.03,
        steps=steps,
        learning_rate=2e-3,
        warmup=20,
        weight_decay=1e-4,
    )
