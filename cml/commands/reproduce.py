"""``cml reproduce PAPER EXPERIMENT --data DIR``: a published experiment with its own settings, beside its figures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cml import tasks
from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, AsMarkdown, pick, print_json, print_text
from cml.training.config import TrainConfig

_DRLIM = "drlim"


@dataclass(frozen=True)
class Reproduce:
    """Train as published, and set what comes of it beside the published figures."""

    training: TrainConfig
    out: Path
    """Folder for the runs and the table. What is finished there stays; the same command goes on."""
    data: Path | None = None
    """Folder of the prepared dataset. Without it nothing is trained: published figures, commands and a forecast."""
    small: bool = False
    """Run every row end to end on a few drawn images, for two steps from random weights, to see that it works."""
    rows: tuple[str, ...] = ()
    """Names of the rows to run, each in quotes; by default all that can be run."""
    bn_inception: Path | None = None
    """File of the published weights of BN-Inception, bn_inception-52deb4733.pth, which is not downloaded."""
    seeds: int = 1
    """Runs a method; intervals need at least 2."""
    dimensions: tuple[int, ...] = ()
    """More sizes of the embedding to train every method at, for the curves over the dimension."""
    markdown: AsMarkdown = False
    json: AsJson = False


@dataclass(frozen=True)
class ReproduceDrlim:
    """Learn a map of shifted digits in two dimensions, and set it beside locally linear embedding."""

    out: Path = Path("runs/drlim/digits")
    """Folder for the table and the maps."""
    small: bool = False
    """Run everything end to end on 60 digits, for a few steps, to see that it works."""
    steps: int = 600
    """Number of training steps."""
    seeds: int = 3
    """Runs, each with another split into training and test digits; intervals need at least 2."""
    markdown: AsMarkdown = False
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Train what can be trained here, and print the table."""
    from cml.papers import DRLIM
    from cml.tasks.papers import PAPERS

    titles = {name: next(iter(some.values())).paper for name, some in PAPERS.items()} | {_DRLIM: DRLIM}
    paper, rest = pick(arguments, "paper", titles, titles.__getitem__, "cml reproduce")
    if paper == _DRLIM:
        _run_drlim(rest)
        return
    some, prog = PAPERS[paper], f"cml reproduce {paper}"
    name, rest = pick(rest, "experiment", some, lambda key: f"task {some[key].task}: {some[key].prepare}", prog)
    experiment, prog = some[name], f"{prog} {name}"
    about = f"{experiment.paper}: {name}. {experiment.prepare}. An option that you set holds for all methods."
    default = Reproduce(experiment.config, Path("runs") / paper / name)
    options = parse(Reproduce, rest, prog=prog, description=about, default=default)

    from cml.papers.reproduce import REPRODUCTION, ReproduceOptions, reproduce  # which imports torch

    how = ReproduceOptions(options.seeds, options.dimensions, options.rows, options.bn_inception, options.small)
    out = options.out / "small" if options.small else options.out
    lacks_data = options.data is None and not options.small
    if lacks_data and not options.json:  # before the forecast, which takes seconds
        print_text("Nothing is trained without the data:")
        print_text(f"data:  {experiment.get}\nfirst: {experiment.prepare}\nnext:  {prog} --data DATA")
        if tasks.get(experiment.task).sample:
            print_text(f"drawn: cml demo {experiment.task} compares two of the losses on drawn images, in minutes")
        print_text("")
    reproduction = reproduce(experiment, options.training, options.data, out, how)
    if options.json:
        print_json(asdict(reproduction))
        return
    print_text(reproduction.markdown() if options.markdown else reproduction)
    if not lacks_data:
        print_text(f"In {out}: {REPRODUCTION}.json, {REPRODUCTION}.md and the runs")


def _run_drlim(arguments: Sequence[str]) -> None:
    """Learn the maps, and print their table."""
    from cml.papers import DRLIM

    prog = f"cml reproduce {_DRLIM}"
    experiment, rest = pick(arguments, "experiment", ["digits"], lambda _: "digits of scikit-learn, no download", prog)
    options = parse(ReproduceDrlim, rest, prog=f"{prog} {experiment}", description=f"{DRLIM}. {ReproduceDrlim.__doc__}")

    from cml.papers.drlim import DrlimOptions, reproduce_drlim  # which imports torch

    how = DrlimOptions(options.steps, seeds=options.seeds)
    if options.small:
        how = DrlimOptions(steps=20, batch_size=64, seeds=2, items=60)
    maps = reproduce_drlim(options.out, how)
    if options.json:
        print_json({"figures": maps.figures, "notes": maps.notes()})
        return
    print_text(maps.markdown() if options.markdown else maps)
    print_text(f"In {options.out}: map.svg, reproduction.json and reproduction.md")
