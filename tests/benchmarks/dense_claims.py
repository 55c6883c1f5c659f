"""Dense lists against naive lists and against all pairs, at equal forward passes.

Run by hand: ``python tests/benchmarks/dense_claims.py [--sets people ..] [--json FILE]``. "Deep Metric Learning Beyond
Binary Supervision" trains on lists of one anchor, its nearest neighbours and random others, and reports that they
improve on naive lists, whose others are all random. cml's default has every item of a random batch as an anchor. A
linear head on the features of a set of the benchmark is trained in each of the three ways, with as many steps of as
many items. The learning rate is the best of ``--rates`` on the validation items. The score is that of the benchmark;
a difference is paired by seed and query, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

from cml.array_types import Float64
from cml.comparing.bench.methods import METHODS
from cml.comparing.bench.scores import PRIMARY, interval
from cml.comparing.bench.sets import BenchSet, open_set
from cml.comparing.bench.suite import NO_BACKBONE, SETS, SUITES, VERSION
from cml.comparing.bench.trials import run_final, run_fixed_row, run_trial
from cml.training.config import TrainConfig

WAYS = {
    "dense lists": "dense(batch_size={batch})",
    "naive lists": "dense(nearest=0, batch_size={batch})",
    "all pairs": "random(batch_size={batch})",
}
LOSSES = ("log-ratio", "log-ratio-paper", "dense-triplet")
CLAIMS = [("dense lists", "naive lists"), ("all pairs", "dense lists"), ("all pairs", "naive lists")]


def measure(data: BenchSet, config: TrainConfig, rates: Sequence[float], seeds: int) -> tuple[Float64, float]:
    """The score of each seed and query, (S, Q), at the best rate; and that rate."""
    trials = {rate: run_trial(data, replace(config, learning_rate=rate), 0) for rate in rates}
    best = max(rates, key=lambda rate: trials[rate].score or 0.0)
    finals = [
        run_final(data, replace(config, learning_rate=best, seed=seed), len(trials), len(rates))
        for seed in range(1, seeds + 1)
    ]
    return np.stack([final.scores[PRIMARY] for final in finals]), best


def describe(values: Float64, reaches: Float64) -> dict[str, float]:
    """Mean and 95 % interval over seeds and queries."""
    low, high = interval(values, reaches)
    return {"mean": float(np.nanmean(values)), "low": low, "high": high}


def compare(name: str, losses: Sequence[str], rates: Sequence[float], seeds: int, steps: int, batch: int) -> Any:  # noqa: ANN401 - JSON
    """The scores of all ways with each loss, their differences, and the rates that were chosen."""
    data, suite = open_set(name, VERSION), SUITES[VERSION]
    config = suite.config("A", NO_BACKBONE if SETS[name].input_kind == "vectors" else "")
    config = replace(config, steps=steps, label_distance=data.label_distance)
    reaches = run_fixed_row("oracle", data, config).scores[PRIMARY]
    frozen = run_fixed_row("frozen", data, config).scores[PRIMARY]
    found: dict[str, Any] = {"frozen": describe(frozen[None], reaches)}
    for loss in losses:
        values, chosen = {}, {}
        for way, sampler in WAYS.items():
            options = replace(config, loss=METHODS[loss].loss, sampler=sampler.format(batch=batch))
            values[way], chosen[way] = measure(data, options, rates, seeds)
        found[loss] = {
            "scores": {way: describe(some, reaches) for way, some in values.items()},
            "claims": {f"{one} > {other}": describe(values[one] - values[other], reaches) for one, other in CLAIMS},
            "rates": chosen,
        }
        print(name, loss, found[loss]["claims"], file=sys.stderr, flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["people", "rooms", "scenes"], choices=list(SETS))
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(METHODS))
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-3, 3e-3, 1e-2])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64, help="items of a batch")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    for name in options.sets:
        figures[name] = compare(name, options.losses, options.rates, options.seeds, options.steps, options.batch)
        write_figures(options.json, figures)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
