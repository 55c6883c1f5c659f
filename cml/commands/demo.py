"""``cml demo [TASK]``: a comparison and a retrieval report in three minutes, on drawn data, without network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from cml import tasks
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, AsMarkdown, pick, print_json, print_text
from cml.errors import quoted_list
from cml.processes.exactness import Precision

FIRST = "pose"  # the task of a bare ``cml demo``


@dataclass(frozen=True)
class Demo:
    """Train with the log-ratio loss and with thresholded binary triplets on drawn images, and compare the retrieval."""

    out: Path = Path("runs/demo")
    """Folder for the drawn datasets, the runs and the retrieval report."""
    steps: int = 350
    """Number of training steps per loss, at least 1."""
    count: int | None = None
    """Number of images to draw; by default that of the data source."""
    train: int | None = None
    """Number of training images among them; by default two thirds."""
    seeds: int = 1
    """Number of runs per loss, with seeds 0, 1, ... With 2 or more, the table shows intervals over seeds."""
    precision: Precision = "float32"
    """bfloat16 uses autocast: about twice as fast on CPUs with hardware support, slower on others."""
    backbone: str = ""
    """Backbone, trained from scratch; by default small-cnn(layers=4), or small-cnn(layers=4, grid=1) for captions."""
    variants: tuple[str, ...] = ()
    """Names of the task's variants to train, each in quotes; by default "log-ratio" and "binary triplet, threshold".
    The retrieval report shows the first variant next to the first binary one."""
    markdown: AsMarkdown = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Draw, train, evaluate, print the table."""
    known = [name for name in tasks.names() if tasks.get(name).sample]
    name, rest = pick(arguments, "task", known, lambda name: tasks.get(name).summary, "cml demo", default=FIRST)
    description = f"{Demo.__doc__} TASK is one of {', '.join(known)}; by default, it is {FIRST}. "
    description += f"Variants: {quoted_list(tasks.get(name).variants)}."
    options = parse(Demo, rest, prog=f"cml demo {name}", description=description)
    from cml.comparing.demo import demonstrate  # which imports torch

    began = perf_counter()
    result = demonstrate(
        name,
        options.out,
        steps=options.steps,
        count=options.count,
        train=options.train,
        seeds=options.seeds,
        precision=options.precision,
        backbone=options.backbone,
        variants=options.variants,
    )
    comparison, seconds = result.comparison, perf_counter() - began
    if options.json:
        print_json({**comparison.to_json(), "retrieval_report": str(result.retrieval_report), "seconds": seconds})
        return
    print_text(f"{comparison.markdown()}\n\n{comparison.notes()}" if options.markdown else comparison)
    print_text(f"{seconds:.0f} s in all.")
    print_text(f"look:  {result.retrieval_report.resolve()}")
    print_text("next:  your own images, and a CSV with one number per image:")
    print_text("       cml prepare folder --images DIR --labels labels.csv --label-columns age --out data/mine")
