"""A long training run: whether memory stays flat, and whether handles and processes are given back.

Run: python tests/benchmarks/long_run.py [--minutes 60] [--every 5] [--plot memory.png]

Trains small-cnn on drawn people of 64 px into a run folder, with two data workers, validation and a checkpoint every
200 steps, until the time is over; then asks for an end as Ctrl-C does. Memory is that of the process and its workers:
resident, and proportional (a page that three processes share counts a third in each). Pages of files are left out: how
many of torch's libraries' are resident, and shared with whom, is the doing of the system and of other programs. Growth
is told from the end of warm-up, the first fifth of the time but at most ten minutes. A short run before has everything
imported. The last line is the growth against the bar of 2 %.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from figures_file import add_json_option, write_figures  # beside this file

from cml import tasks
from cml.data_prep.synthetic.people.source import People
from cml.processes.freed_memory import keep_freed_memory
from cml.runs.train import train_task

BAR = 2.0  # percent


@dataclass(frozen=True)
class Sample:
    """What is seen at one moment: minutes from the start, MB, handles of the training process, its children."""

    minute: float
    resident: float
    proportional: float
    handles: int
    children: int


def children(process: int) -> list[int]:
    """The children of a process and theirs."""
    found = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has just ended, or its process
            for child in map(int, task.read_text().split()):
                found += [child, *children(child)]
    return found


def sample(began: float) -> Sample:
    """Look at this process and its children."""
    own = os.getpid()
    below = children(own)
    resident = proportional = 0
    for process in [own, *below]:
        try:
            lines = [Path(f"/proc/{process}/{name}").read_text() for name in ("status", "smaps_rollup")]
        except OSError:  # it has just ended
            continue
        sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB$", "".join(lines), re.MULTILINE))
        resident += sum(int(sizes.get(name, 0)) for name in ("RssAnon", "RssShmem"))  # none of one that has just ended
        proportional += sum(int(sizes.get(name, 0)) for name in ("Pss_Anon", "Pss_Shmem"))
    handles = len(os.listdir(f"/proc/{own}/fd"))
    return Sample((time.monotonic() - began) / 60, resident / 1024, proportional / 1024, handles, len(below))


def watch(samples: list[Sample], minutes: float, every: float, over: threading.Event) -> None:
    """Take samples until the time is over, then interrupt the training."""
    began = time.monotonic()
    while not over.wait(every):
        samples.append(sample(began))
        if len(samples) % max(1, round(30 / every)) == 1:
            print(_line(samples[-1]), flush=True)
        if samples[-1].minute >= minutes:
            os.kill(os.getpid(), signal.SIGINT)
            return


def _line(one: Sample) -> str:
    return (
        f"minute {one.minute:6.1f}: resident {one.resident:7.1f} MB, proportional {one.proportional:7.1f} MB, "
        f"{one.handles} handles, {one.children} children"
    )


def draw(samples: list[Sample], path: Path) -> None:
    """Memory over time, from zero."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    axes = figure.subplots()
    minutes = [one.minute for one in samples]
    axes.plot(minutes, [one.resident for one in samples], label="resident")
    axes.plot(minutes, [one.proportional for one in samples], label="proportional")
    axes.set(xlabel="minutes", ylabel="MB", ylim=(0, None))
    axes.legend()
    figure.savefig(path)


def growth(values: list[float]) -> tuple[float, float]:
    """Percent by which the last tenth lies above the first tenth, and the furthest single value from the first."""
    tenth = max(1, len(values) // 10)
    first, last = statistics.fmean(values[:tenth]), statistics.fmean(values[-tenth:])
    furthest = max(values, key=lambda value: abs(value - first))
    return 100 * (last / first - 1), 100 * (furthest / first - 1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; 1 if memory grew by more than the bar or something was not given back."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds between two samples")
    parser.add_argument("--people", type=int, default=900, help="drawings to train on")
    parser.add_argument("--plot", type=Path)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    keep_freed_memory()  # as every command does
    task = tasks.get("pose")
    config = replace(
        task.recipe,
        backbone="small-cnn",
        weights="none",
        image_size=(64, 64),
        sampler="random(batch_size=60)",
        brightness_jitter=0.1,
        flip="list",
        steps=10_000_000,
        schedule="constant",
        evaluate_every=500,
        workers=2,
        device="cpu",
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CML_CACHE"] = f"{folder}/cache"
        people = People(count=options.people, size=64).prepare(Path(folder) / "people")
        train_task(task, people, replace(config, steps=20, evaluate_every=10), Path(folder) / "first", quiet=True)
        before, samples, over = sample(time.monotonic()), list[Sample](), threading.Event()
        watcher = threading.Thread(target=watch, args=(samples, options.minutes, options.every, over))
        watcher.start()
        try:
            train_task(task, people, config, Path(folder) / "long", quiet=True)
        except KeyboardInterrupt as stop:
            print(f"stopped: {stop}")
        finally:
            over.set()
            watcher.join()
        after = sample(time.monotonic())
    warm = [one for one in samples if one.minute >= min(10, options.minutes / 5)]
    drift = {name: growth([getattr(one, name) for one in warm]) for name in ("resident", "proportional")}
    for name, (end, furthest) in drift.items():
        print(f"{name} memory after warm-up: {end:+.2f} % at the end, {furthest:+.2f} % at the furthest")
    print(f"before {before.handles} handles, {before.children} children; after {after.handles}, {after.children}")
    if options.plot is not None:
        draw(samples, options.plot)
    worst = max((end for end, _ in drift.values()), key=abs)
    given_back = (after.handles, after.children) == (before.handles, before.children)
    print(f"growth of memory {worst:+.2f} %, bar +-{BAR} %; {'all' if given_back else 'not all'} given back")
    figures = {name: {"growth": end / 100, "furthest": furthest / 100} for name, (end, furthest) in drift.items()}
    write_figures(options.json, {"minutes": options.minutes, "memory": figures, "given_back": given_back})
    return 0 if abs(worst) <= BAR and given_back else 1


if __name__ == "__main__":
    torch.set_num_threads(min(2, torch.get_num_threads()))
    raise SystemExit(main())
