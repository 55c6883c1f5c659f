"""How many trials of the benchmark an hour: heads trained at once, one after the other, and as runs of ``cml.compare``.

    python tests/benchmarks/bench_heads.py [--items 800] [--heads 20] [--steps 300] [--loss log-ratio] [--runs 2]

Process time, not wall time, so that what else the machine does counts little. A run of ``cml.compare`` reads its
features from the cache, trains and evaluates, which is how the same trials were run before.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import cml
from cml import distances
from cml.bench.heads import train_heads
from cml.bench.suite import METHODS, SUITES
from cml.data_prep import get
from cml.runs.search_space import with_settings


def seconds(work: Callable[[], object]) -> float:
    """Process time of some work, without its first call's imports."""
    before = time.process_time()
    work()
    return time.process_time() - before


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=800)
    parser.add_argument("--heads", type=int, default=20)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument("--weights", default="imagenet")
    parser.add_argument("--loss", default="log-ratio")
    parser.add_argument("--runs", type=int, default=2, help="runs of cml.compare")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("CML_CACHE", folder)
        data = get("people", count=given.items * 3 // 2).prepare(Path(folder) / "people")
        method, suite = METHODS[given.loss], SUITES["2026.1"].heads
        base = replace(
            suite,
            loss=method.loss,
            steps=given.steps,
            backbone=given.backbone,
            weights=given.weights,
            image_size=(64, 64),
            sampler=f"random(batch_size={given.batch})",
        )
        configs = [with_settings(base, method.settings(number, "A")) for number in range(given.heads)]
        distance = distances.get("keypoints", squared=False)
        labels = distance.encode(data.split("train").labels)
        blocks, width = distance.pairwise(labels, labels), {"efficientnet-lite0": 1280}.get(given.backbone, 256)
        features = np.random.default_rng(0).normal(size=(len(labels), width)).astype(np.float32)
        train_heads([replace(one, steps=1) for one in configs[:2]], features, blocks)
        at_once = seconds(lambda: train_heads(configs, features, blocks)) / given.heads
        alone = seconds(lambda: [train_heads([one], features, blocks) for one in configs[:5]]) / min(5, given.heads)
        print(f"{given.loss}, {given.heads} heads, {given.steps} steps of {given.batch}: seconds a trial")
        print(f"  at once                {at_once:8.3f}")
        print(f"  one after the other    {alone:8.3f}   {alone / at_once:5.1f} times")
        if given.runs:
            options = replace(base, label_distance="keypoints(squared=False)", loss="log-ratio")

            def run(number: int, seeds: int) -> object:
                out = Path(folder) / f"runs-{number}"
                return cml.compare("pose", data, out, losses=[method.loss], seeds=seeds, config=options)

            seconds(lambda: run(0, 1))  # the features, once
            before = seconds(lambda: run(1, given.runs)) / given.runs
            print(f"  as runs of cml.compare {before:8.3f}   {before / at_once:5.1f} times")


if __name__ == "__main__":
    main()
