"""What the short trials of track B lose: the trials of a method once more, with the steps of final runs.

    python tests/benchmarks/bench_trials.py [--set people] [--method log-ratio] [--version 2026.1] [--trials 20]
        [--json FILE]

Prints the rank correlation of the validation scores of both, and what the trial that the short ones choose reaches with
all steps, beside the best and the median trial. The set lies in the cache, as for ``cml bench``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file
from scipy.stats import spearmanr

from cml.bench.computing import run_trials
from cml.bench.sets import open_set
from cml.bench.suite import METHODS, SUITES
from cml.runs.search_space import with_settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", default="people")
    parser.add_argument("--method", default="log-ratio")
    parser.add_argument("--version", default="2026.1")
    parser.add_argument("--trials", type=int, default=20)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    suite, method, data = SUITES[options.version], METHODS[options.method], open_set(options.set, options.version)
    base = method.options(suite.config("B"), data.vectors)
    whole = [with_settings(base, method.settings(number, "B")) for number in range(options.trials)]
    short, full = (
        np.array([one.score if one.score is not None else -np.inf for one in run_trials(data, "B", configs)])
        for configs in ([suite.trial("B", one) for one in whole], whole)
    )
    figures = {
        "rank_correlation": float(spearmanr(short, full).statistic),
        "chosen": float(full[int(short.argmax())]),
        "best": float(full.max()),
        "median": float(np.median(full)),
    }
    print(f"{options.method} on {options.set}: rank correlation {figures['rank_correlation']:.2f}")
    print(f"chosen {figures['chosen']:.3f}, best {figures['best']:.3f}, median {figures['median']:.3f}")
    write_figures(options.json, {"trials": options.trials, **figures})


if __name__ == "__main__":
    main()
