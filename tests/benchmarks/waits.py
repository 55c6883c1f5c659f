"""What users wait for, beside the least that such work can cost: one product, the best of plain loops, bare Python.

    python tests/benchmarks/waits.py [--parts evaluation distances decoding failing] [--gallery 100000] [--json FILE]

Processor time of one thread, the ways by turns, the least of each. Parts:

- evaluation: ``model.evaluate`` of 192 queries among ``--gallery`` vectors of 768 numbers with all rows, intervals and
  probes included, and ``evaluate_embeddings`` of 1,000 among a fifth of them, beside one float32 product of the same
  queries and gallery. Both also without the time of intervals, the former of a loaded model, which has no probes.
- distances: label distances of few numbers, beside the best of SciPy, plain numba and a matrix product.
- decoding: JPEGs of 640 x 480 pixels, of two photographs in two qualities and two samplings of colours, read to 224
  pixels exactly and fast, beside the decoding and resizing of torchvision.
- failing: commands that end with an error, beside Python that does nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from numba import njit
from PIL import Image
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation
from sklearn.datasets import load_sample_images
from threadpoolctl import threadpool_limits
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2 import functional

import cml
from cml import distances
from cml.array_types import Float32, Float64, UInt8
from cml.data.images import read_image
from cml.retrieval import EvaluateOptions, evaluate_embeddings
from cml.retrieval.effect_sums import EffectSums

measuring = importlib.import_module("cml.retrieval.evaluation")

PARTS = ("evaluation", "distances", "decoding", "failing")
WIDTH = 768
FAILING = {
    "cml evaluate /nowhere": ["evaluate", "/nowhere"],
    "cml audit /nowhere": ["audit", "/nowhere"],
    "cml report /nowhere": ["report", "/nowhere"],
    "cml check /nowhere": ["check", "/nowhere"],
    "cml prepare folder --nothing": ["prepare", "folder", "--nothing"],
    "cml train value --nothing": ["train", "value", "--nothing"],
    "cml train value --data /nowhere": ["train", "value", "--data", "/nowhere", "--out", "/nowhere"],
    "cml demo --nothing": ["demo", "--nothing"],
    "cml explore /nowhere": ["explore", "/nowhere"],
    "cml search /nowhere": ["search", "/nowhere", "image.jpg"],
    "cml embed /nowhere": ["embed", "/nowhere", "--images", "/nowhere", "--out", "/nowhere"],
    "cml index /nowhere": ["index", "/nowhere", "/nowhere", "--out", "/nowhere"],
    "cml features --images /nowhere": ["features", "--images", "/nowhere", "--out", "/nowhere"],
    "cml serve /nowhere": ["serve", "/nowhere"],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ratios of all parts, and write them with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--gallery", type=int, default=100_000)
    parser.add_argument("--labels", type=int, default=2000, help="labels that are compared with each other")
    parser.add_argument("--repeats", type=int, default=3)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, float] = {}
    with threadpool_limits(1):
        if "evaluation" in options.parts:
            figures |= evaluation(options.gallery, options.repeats)
        if "distances" in options.parts:
            figures |= label_distances(options.labels, options.repeats)
        if "decoding" in options.parts:
            figures |= decoding(options.repeats)
        if "failing" in options.parts:
            figures |= failing(options.repeats)
    write_figures(options.json, figures)


def by_turns(ways: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The least processor time of each way in seconds, after a first call that compiles."""
    least = dict.fromkeys(ways, np.inf)
    for turn in range(repeats + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            if turn:
                least[name] = min(least[name], time.process_time() - start)
    return least


def ratio(title: str, seconds: Mapping[str, float]) -> dict[str, float]:
    """Print the first way over the best of the others."""
    ours, *others = seconds.values()
    found = ours / min(others)
    print(f"{title}: {found:.2f} times ({', '.join(f'{name} {time:.4g} s' for name, time in seconds.items())})")
    sys.stdout.flush()
    return {title: found}


def evaluation(gallery: int, repeats: int) -> dict[str, float]:
    """Evaluations over one product."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((gallery, WIDTH), dtype=np.float32)
    queries = rng.standard_normal((1000, WIDTH), dtype=np.float32)
    labels, of_queries = items[:, 0], queries[:, 0] + 0.01
    few, part, options = queries[:192], items[: gallery // 5], EvaluateOptions(threads=1)
    model = cml.fit(items[:3000], labels[:3000], steps=20, quiet=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = cml.load(Path(folder) / "model")

    def evaluate_few(model: cml.Model) -> object:
        return model.evaluate(few, of_queries[:192], items, labels, options=options)

    def evaluate_part() -> object:
        return evaluate_embeddings(queries, of_queries, part, labels[: len(part)], options=options)

    of_few = f"model.evaluate, 192 among {gallery:,}"
    figures = ratio(of_few, by_turns({"cml": lambda: evaluate_few(model), "product": lambda: few @ items.T}, repeats))
    figures |= without_intervals(of_few, lambda: evaluate_few(loaded), lambda: few @ items.T, repeats)
    of_part = f"evaluate_embeddings, 1,000 among {len(part):,}"
    figures |= ratio(of_part, by_turns({"cml": evaluate_part, "product": lambda: queries @ part.T}, repeats))
    return figures | without_intervals(of_part, evaluate_part, lambda: queries @ part.T, repeats)


def without_intervals(
    title: str, evaluate: Callable[[], object], product: Callable[[], object], repeats: int
) -> dict[str, float]:
    """The ratio of an evaluation to a product, less the time of what only intervals need."""
    spent = 0.0

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:  # noqa: ANN401 - passed on
            nonlocal spent
            started = time.thread_time()  # one of two threads
            found = work(*arguments)
            spent += time.thread_time() - started
            return found

        return run

    parts: list[tuple[Any, str]] = [(EffectSums, name) for name in ("add", "add_chance", "influences")]
    parts += [(measuring._Blocks, "_find_effects"), (measuring, "item_intervals")]
    ours = []
    with contextlib.ExitStack() as stack:
        for holder, name in parts:
            stack.enter_context(mock.patch.object(holder, name, timed(getattr(holder, name))))
        for _ in range(repeats):
            spent, started = 0.0, time.process_time()
            evaluate()
            ours.append(time.process_time() - started - spent)
    seconds = {"cml": min(ours)} | by_turns({"product": product}, repeats)
    return ratio(f"{title}, without intervals", seconds)


@njit
def _plain_euclidean(a: Float64) -> Float32:
    out = np.empty((len(a), len(a)), np.float32)
    for i in range(len(a)):
        for j in range(len(a)):
            total = 0.0
            for k in range(a.shape[1]):
                total += (a[i, k] - a[j, k]) ** 2
            out[i, j] = math.sqrt(total)
    return out


@njit
def _plain_circular(a: Float64, period: float) -> Float32:
    out = np.empty((len(a), len(a)), np.float32)
    for i in range(len(a)):
        for j in range(len(a)):
            way = abs(a[i, 0] - a[j, 0])
            if way >= period:
                way -= period
            out[i, j] = min(way, period - way)
    return out


def label_distances(count: int, repeats: int) -> dict[str, float]:
    """Label distances of few numbers over the best other way."""
    rng = np.random.default_rng(0)
    figures: dict[str, float] = {}
    euclidean, circular, rotation = (distances.get(name) for name in ("euclidean", "circular", "rotation"))
    for dimension in (2, 3, 8):
        rows = rng.standard_normal((count, dimension))
        labels = euclidean.encode(rows)
        ways: dict[str, Callable[[], object]] = {
            "cml": lambda labels=labels: euclidean.pairwise(labels, labels),
            "SciPy": lambda rows=rows: cdist(rows, rows).astype(np.float32),
            "plain numba": lambda rows=rows: _plain_euclidean(rows),
            "product": lambda rows=rows: _product(rows),
        }
        figures |= ratio(f"euclidean, {dimension} numbers", by_turns(ways, repeats))
    phases = rng.uniform(0, 360, (count, 1))
    on_circle = circular.encode(phases)
    ways = {
        "cml": lambda: circular.pairwise(on_circle, on_circle),
        "plain numba": lambda: _plain_circular(phases, 360.0),
    }
    figures |= ratio("circular", by_turns(ways, repeats))
    quaternions = Rotation.from_rotvec(rng.normal(size=(count, 3))).as_quat()
    turns = rotation.encode(quaternions)
    ways = {
        "cml": lambda: rotation.pairwise(turns, turns),
        "product and arccos": lambda: np.degrees(2 * np.arccos(np.minimum(np.abs(quaternions @ quaternions.T), 1))),
    }
    return figures | ratio("rotation", by_turns(ways, repeats))


def _product(rows: Float64) -> Float32:
    norms = np.square(rows).sum(axis=1)
    squared = norms[:, None] + norms - 2 * rows @ rows.T
    return np.sqrt(np.maximum(squared, 0)).astype(np.float32)


def decoding(repeats: int) -> dict[str, float]:
    """Reading of JPEGs, exactly and fast, over that of torchvision."""
    torch.set_num_threads(1)
    figures: dict[str, float] = {}
    for quality, sampling in ((75, "4:2:0"), (95, "4:2:0"), (75, "4:4:4")):
        files = [_encode(picture, quality, sampling) for picture in load_sample_images().images] * 10
        for decode in ("exact", "fast"):
            ways = {
                "cml": lambda files=files, decode=decode: [read_image(file, (224, 224), decode) for file in files],
                "torchvision": lambda files=files: [_read_by_torchvision(file) for file in files],
            }
            size = sum(map(len, files)) / len(files) / 1000
            title = f"20 JPEGs of quality {quality}, {sampling}, {size:.0f} kB, {decode}"
            figures |= ratio(title, by_turns(ways, repeats))
    return figures


def _encode(picture: UInt8, quality: int, sampling: str) -> bytes:
    """A photograph as the content of a JPEG file."""
    file = io.BytesIO()
    Image.fromarray(picture).resize((640, 480)).save(file, "JPEG", quality=quality, subsampling=sampling)
    return file.getvalue()


def _read_by_torchvision(file: bytes) -> UInt8:
    decoded = decode_jpeg(torch.frombuffer(bytearray(file), dtype=torch.uint8), ImageReadMode.RGB)
    resized: UInt8 = functional.resize(decoded, [224, 224], antialias=True).permute(1, 2, 0).numpy()
    return resized


def failing(repeats: int) -> dict[str, float]:
    """Processor seconds of commands that end with an error, less those of bare Python."""

    def seconds(command: Sequence[str]) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=False, timeout=300)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    figures = {}
    bare = min(seconds([sys.executable, "-c", ""]) for _ in range(repeats))
    for name, arguments in FAILING.items():
        figures[name] = min(seconds([sys.executable, "-m", "cml", *arguments]) for _ in range(repeats)) - bare
        print(f"{name}: {figures[name]:.2f} s more than Python alone ({bare:.2f} s)", flush=True)
    return figures


if __name__ == "__main__":
    main()
