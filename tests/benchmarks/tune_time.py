"""How long ``tune`` takes: splits, heads, regressions and scores, beside the label distances that these ask for.

    python tests/benchmarks/tune_time.py [--items 10000] [--features 1280] [--threads 1]

The label is a number that is mostly linear in drawn features. Printed are the process time of all threads and the time
by the clock, in seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from threadpoolctl import threadpool_limits

from cml.distances import as_label_distance
from cml.training.tune import tune

_DIMENSION, _LATENT = 128, 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=1280)
    parser.add_argument("--threads", type=int, default=1)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(given.items, _LATENT))
    rows = latent @ rng.normal(size=(_LATENT, given.features)) + 0.5 * rng.normal(size=(given.items, given.features))
    numbers = (latent[:, 0] + 0.2 * rng.normal(size=given.items)).tolist()
    distance = as_label_distance("euclidean").fit(numbers)
    features, labels = rows.astype(np.float32), distance.encode(numbers)
    with threadpool_limits(given.threads):
        tune(features[:60], labels[:60], distance, 8)  # compiles what is compiled
        before, used = time.perf_counter(), time.process_time()
        _, tuning = tune(features, labels, distance, _DIMENSION)
        seconds, process = time.perf_counter() - before, time.process_time() - used
    print(
        f"{given.items} items of {given.features} features, {given.threads} threads: {process:.1f} s of process time, "
        f"{seconds:.1f} s by the clock"
    )
    print("\n".join(tuning.lines()))
    write_figures(given.json, {"process_seconds": process, "seconds": seconds, "gain": tuning.gain})


if __name__ == "__main__":
    main()
