"""What each step costs as its sizes grow: items N, batch B, dimension d, neighbours k, queries Q, depth K.

    python tests/benchmarks/scale.py [--out scale.png] [--scratch DIR] [--rounds 3] [--smaller 1] [--only open ..]
        [--largest 1000000] [--json FILE]

Every step is measured at three sizes of one letter at a time, on drawn or random data; the table says the processor
time at each (of all threads together, the least of some rounds: the machine may be shared) and the exponent e of a fit
time ~ size^e. A step whose exponent is below that of its formula still has a fixed share at these sizes. Opening runs
in a process of its own and gives its peak memory as well. The figure shows all of it on logarithmic axes.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from large_dataset import write_large

from cml import losses
from cml.data.images import Images
from cml.data_prep.synthetic.scenes.arrangement import sample_things
from cml.data_prep.synthetic.scenes.captions import describe
from cml.data_prep.synthetic.things.picture import RING
from cml.distances import LabelDistance, Labels
from cml.distances.captions.distance import Captions
from cml.distances.euclidean import Euclidean
from cml.distances.layout.distance import Layout
from cml.distances.poses.keypoints import Keypoints
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.reporting.figure import COLORS, INK, MARKS, dress, new_figure, save_figure
from cml.retrieval import EvaluateOptions, embedding_ranker, evaluate
from cml.retrieval.search import nearest_embeddings

_OPEN = """
import json, sys, time
from cml.data.prepared import PreparedDataset
began = time.process_time()
dataset = PreparedDataset.open(sys.argv[1])
seconds = time.process_time() - began
status = open("/proc/self/status").read()  # getrusage would count what the process was forked from
print(json.dumps([seconds, int(status.split("VmHWM:")[1].split()[0]) / 1024]))
"""


class Line(NamedTuple):
    """One step, measured at three sizes or more."""

    panel: str
    step: str
    letter: str
    cost: str  # by its formula
    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """Of the straight line through the points on logarithmic axes."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])


class Bench:
    """Measures steps and prints a line of the table for each."""

    def __init__(self, rounds: int, smaller: int = 1, largest: int = 0) -> None:
        self.lines: list[Line] = []
        self.opened: dict[str, dict[str, list[float]]] = {}  # label to sizes in bytes, of memory and metadata
        self.largest = largest
        self._rounds, self._smaller = rounds, smaller

    def sizes(self, *sizes: int) -> tuple[int, ...]:
        """The sizes to measure at, divided as asked for."""
        return tuple(max(2, size // self._smaller) for size in sizes)

    def add(
        self, panel: str, step: str, letter: str, cost: str, sizes: tuple[int, ...], make: Callable[[int], object]
    ) -> None:
        """Measure ``make(size)()`` at each size."""
        sizes = self.sizes(*sizes)
        runs = [make(size) for size in sizes]
        self.known(panel, step, letter, cost, sizes, tuple(self._least(run) for run in runs))  # type: ignore[arg-type]

    def known(
        self, panel: str, step: str, letter: str, cost: str, sizes: tuple[int, ...], seconds: tuple[float, ...]
    ) -> None:
        """Take a step whose times are known."""
        line = Line(panel, step, letter, cost, sizes, seconds)
        self.lines.append(line)
        points = "  ".join(f"{size:>7,} {1000 * one:>9.1f}" for size, one in zip(sizes, seconds, strict=True))
        print(f"{panel:10} {step:34} {letter:2} {cost:18} {points}  {line.exponent:5.2f}", flush=True)

    def figures(self) -> dict[str, object]:
        """All figures: group, step and letter to sizes, seconds and exponent; and what opening takes."""
        steps: dict[str, dict[str, dict[str, object]]] = {}
        for line in self.lines:
            entry = {"sizes": line.sizes, "seconds": line.seconds, "exponent": line.exponent}
            steps.setdefault(line.panel, {}).setdefault(line.step, {})[line.letter] = entry
        return {"steps": steps, "opened": self.opened}

    def _least(self, run: Callable[[], object]) -> float:
        run()  # compiles, and fills what is cached
        times = []
        for _ in range(self._rounds):
            gc.collect()
            began = time.process_time()
            run()
            times.append(time.process_time() - began)
        return min(times)


def poses(n: int, rng: np.random.Generator) -> list[object]:
    """Poses of 16 joints."""
    joints = np.concatenate([rng.uniform(0, 224, (n, 16, 2)), rng.random((n, 16, 1)) < 0.9], axis=2)
    return list(joints)


def rooms(n: int, rng: np.random.Generator) -> list[object]:
    """Layouts of 60 x 60: ceiling, wall, floor."""
    y = np.arange(60)[None, :, None]
    top, bottom = rng.uniform(5, 20, (n, 1, 1)), rng.uniform(30, 55, (n, 1, 1))
    maps = np.where(y < top, 5, np.where(y > bottom, 4, 1)).astype(np.uint8)
    return list(np.broadcast_to(maps, (n, 60, 60)).copy())


def scenes(n: int) -> list[object]:
    """Five captions each."""
    rngs = [np.random.default_rng(item) for item in range(n)]
    return [list(describe(sample_things(rng, item % len(RING)), rng)) for item, rng in enumerate(rngs)]


def opening(bench: Bench, scratch: Path | None) -> None:
    """PreparedDataset.open."""
    largest = [bench.largest] if bench.largest else []
    for label, more in (("number", largest), ("pose", [])):
        sizes = (*bench.sizes(5_000, 20_000, 80_000), *more)
        times, memory, metadata = [], [], []
        for size in sizes:
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                data = write_large(Path(folder) / "data", size, label)
                command = [sys.executable, "-c", _OPEN, str(data)]
                seconds, peak = json.loads(
                    subprocess.run(command, check=True, capture_output=True, timeout=3600).stdout
                )
                metadata.append(sum(path.stat().st_size for path in data.glob("*/metadata.jsonl")))
            times.append(seconds)
            memory.append(2**20 * peak)
        bench.known("open", f"open a dataset, label {label}", "N", "N", sizes, tuple(times))
        bench.opened[label] = {"peak_bytes": memory, "metadata_bytes": metadata}
    peaks = [peak for entry in bench.opened.values() for peak in entry["peak_bytes"]]
    print(f"{'':10} peak memory, MiB: {', '.join(f'{peak / 2**20:.0f}' for peak in peaks)}")


def label_distances(bench: Bench) -> None:
    """All pairs, and neighbour lists."""
    rng = np.random.default_rng(0)

    def all_pairs(distance: LabelDistance, labels: Labels) -> Callable[[int], Callable[[], object]]:
        return lambda size: lambda: distance.pairwise(labels[:size], labels[:size])

    # captions compare words once a block, so that small blocks cost more a pair
    sources: tuple[tuple[str, LabelDistance, list[object], tuple[int, int, int]], ...] = (
        ("keypoints", Keypoints(), poses(4000, rng), (1000, 2000, 4000)),
        ("layout 60 x 60", Layout(), rooms(1600, rng), (400, 800, 1600)),
        ("captions", Captions("scene-words"), scenes(200), (50, 100, 200)),
    )
    for name, distance, given, sizes in sources:
        bench.add("distances", f"all pairs, {name}", "N", "N^2", sizes, all_pairs(distance, distance.encode(given)))
    for name, distance, given in (("poses", Keypoints(), poses(8000, rng)), ("numbers", Euclidean(), None)):
        labels = distance.encode(rng.uniform(size=8000).tolist() if given is None else given)
        bench.add(
            "neighbours",
            f"exact k = 100 lists, {name}",
            "N",
            "N^2",
            (2000, 4000, 8000),
            lambda size, distance=distance, labels=labels: lambda: distance.neighbors(labels[:size], 100),
        )
    bench.add(
        "neighbours",
        "exact lists, 4,000 numbers",
        "k",
        "N^2 + N k log k",
        (10, 40, 160),
        lambda k: lambda: distance.neighbors(labels[: bench.sizes(4000)[0]], k),
    )


def loss_steps(bench: Bench) -> None:
    """Loss forward and backward, every item an anchor."""

    def run(name: str, batch: int, dimension: int) -> Callable[[], object]:
        generator = torch.Generator().manual_seed(0)
        embeddings = torch.randn(batch, dimension, generator=generator).requires_grad_()
        label_distances = torch.cdist(*[torch.rand(batch, 2, generator=generator)] * 2)
        loss = losses.registry.make(name)
        loss.fit(label_distances[label_distances > 0][:10_000])
        return lambda: loss(embeddings, label_distances).backward()

    sizes = (512, 1024, 2048)
    for name, cost in (("log-ratio", "B^2 log B"), ("log-ratio(weights=uniform)", "B^2 d")):
        bench.add("training", name, "B", cost, sizes, lambda size, name=name: run(name, size, 128))
    bench.add("training", "uniform weights, B = 512", "d", "B^2 d", (64, 256, 1024), lambda d: run(f"{name}", 512, d))


def retrieval(bench: Bench) -> None:
    """Exact search and evaluation."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40_000, 128)).astype(np.float32)
    many, some = bench.sizes(20_000, 4000)

    def search(queries: int, items: int, dimension: int) -> Callable[[], object]:
        gallery = np.ascontiguousarray(points[:items, :dimension])
        return lambda: nearest_embeddings(gallery[:queries], gallery, 10)

    bench.add("search", "200 queries, d = 128", "N", "Q N d", (10_000, 20_000, 40_000), lambda n: search(200, n, 128))
    bench.add("search", "20,000 items, d = 128", "Q", "Q N d", (50, 200, 800), lambda q: search(q, many, 128))
    bench.add("search", "200 queries, 20,000 items", "d", "Q N d", (32, 64, 128), lambda d: search(200, many, d))

    distance = Euclidean()
    labels = distance.encode(rng.uniform(size=8000).tolist())

    def judged(queries: int, items: int, depth: int) -> Callable[[], object]:
        ranker = embedding_ranker(points[:queries], points[:items])
        ks = tuple(sorted({1, depth}))
        return lambda: evaluate(
            {"random": ranker},
            distance,
            labels[:queries],
            labels[:items],
            EvaluateOptions(distance_ks=ks, ndcg_ks=ks, hit_ks=ks),
        )

    cost = "Q N log N"
    bench.add("evaluation", "200 queries, K = 100", "N", cost, (2000, 4000, 8000), lambda n: judged(200, n, 100))
    bench.add("evaluation", "4,000 items, K = 100", "Q", cost, (100, 200, 400), lambda q: judged(q, some, 100))
    bench.add("evaluation", "200 queries, 4,000 items", "K", cost, (10, 100, 1000), lambda k: judged(200, some, k))


def training(bench: Bench) -> None:
    """A step: images, network, loss, update."""
    distance, rng = Euclidean(), np.random.default_rng(0)
    labels = distance.encode(rng.uniform(size=200).tolist())
    images = Images(rng.integers(0, 256, (200, 64, 64, 3), np.uint8), (64, 64))
    shape = ModelConfig("small-cnn", "none", 128, normalize=True, image_size=(64, 64))

    def step(batch: int) -> Callable[[], object]:
        model, loss = EmbeddingModel(shape), losses.registry.make("log-ratio")
        loss.fit(torch.from_numpy(distance.pairwise(labels[:50], labels[50:100]).ravel()))
        optimizer = torch.optim.AdamW(model.parameters())
        items = np.arange(batch)

        def run() -> None:
            pixels = torch.from_numpy(images.read(items)).permute(0, 3, 1, 2)
            optimizer.zero_grad()
            loss(model(pixels), torch.from_numpy(distance.pairwise(labels[items], labels[items]))).backward()
            optimizer.step()

        return run

    bench.add("training", "a step, small-cnn, 64 px", "B", "B pixels + B^2 d", (32, 64, 128), step)


def draw(lines: list[Line], path: Path) -> None:
    """A panel for each group of steps, logarithmic both ways."""
    from matplotlib.ticker import NullFormatter

    panels = list(dict.fromkeys(line.panel for line in lines))
    across = min(3, len(panels))
    down = -(-len(panels) // across)
    figure = new_figure(3.7 * across, 0.4 + 2.8 * down)
    for place, panel in enumerate(panels):
        axis = figure.add_subplot(down, across, place + 1)
        dress(axis, ylabel="processor time, ms" if place % across == 0 else "")
        chosen = [line for line in lines if line.panel == panel]
        for line, color, mark in zip(chosen, COLORS, MARKS, strict=False):
            label = f"{line.step}: ${line.letter}^{{{line.exponent:.1f}}}$"
            milliseconds = [1000 * one for one in line.seconds]
            axis.plot(line.sizes, milliseconds, marker=mark, color=color, markersize=5, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        sizes = [size for line in chosen for size in line.sizes]
        axis.set_xlim(10 ** np.floor(np.log10(min(sizes)) - 0.1), 10 ** np.ceil(np.log10(max(sizes)) + 0.1))
        low, high = axis.get_ylim()
        for side in (axis.xaxis, axis.yaxis):  # whole powers of ten alone get a label
            side.set_minor_formatter(NullFormatter())
        axis.set_ylim(
            10 ** np.floor(np.log10(low)), high * 2 ** (1 + len(chosen))
        )  # room for the legend above the lines
        axis.set_title(panel, loc="left", color=INK, fontsize=11)
        letters = ", ".join(dict.fromkeys(line.letter for line in chosen))
        axis.set_xlabel(letters, color=INK)
        axis.legend(loc="upper left", fontsize=7.5, frameon=False, handlelength=1.6)
    save_figure(figure, path)


PARTS: dict[str, Callable[[Bench, Path | None], None]] = {
    "open": opening,
    "distances": lambda bench, _: label_distances(bench),
    "loss": lambda bench, _: loss_steps(bench),
    "retrieval": lambda bench, _: retrieval(bench),
    "training": lambda bench, _: training(bench),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="PNG to write")
    parser.add_argument("--scratch", type=Path, help="folder for the datasets that are opened; a temporary one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smaller", type=int, default=1, help="divides every size")
    parser.add_argument("--largest", type=int, default=0, help="items of one more dataset to open, of numbers")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    add_json_option(parser)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")  # random poses that share too few joints
    torch.set_num_threads(1)  # idle threads would count as processor time
    torch.manual_seed(0)
    gc.collect()
    gc.freeze()  # what is imported: every collection between two rounds would search it
    bench = Bench(options.rounds, options.smaller, options.largest)
    print(f"{'':10} {'step':34} {'by':2} {'cost':18} {'size, ms at each of three':54}  exponent")
    for part in options.only:
        PARTS[part](bench, options.scratch)
    if options.out:
        draw(bench.lines, options.out)
    write_figures(options.json, bench.figures())


if __name__ == "__main__":
    main()
