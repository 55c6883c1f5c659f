"""The methods whose defaults have changed since the suite 2026.1, by its rules and on its sets, beside its results.

    python tests/benchmarks/changed_methods.py [--sets digits people ..] [--methods log-ratio log-ratio-paper]

A figure is the mean score@10 of the final runs of a linear head on frozen features, as ``cml bench`` computes it: all
trials are scored on validation items, and the settings of the best one are used for the final runs. "2026.1" is the
score of the method of that name in ``results/2026.1``, "defaults" that of final runs with the settings of the first
trial. ``steering`` needs CML_TUB.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from figures_file import add_json_option, write_figures  # beside this file

from cml.bench.computing import run_final, run_trials
from cml.bench.result import read_result, result_path
from cml.bench.scores import score_queries
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import CHANGED, LATEST, SETS, SUITES, Method, Suite, methods_of, track_folder
from cml.runs.search_space import with_settings
from cml.training.config import TrainConfig

VERSION = "2026.2"
_RESULTS = Path(__file__).resolve().parents[2] / "results"
_TRACK = "A"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    offline = [name for name, spec in SETS.items() if spec.tier == "offline" and not spec.variable]
    parser.add_argument("--sets", nargs="+", default=offline)
    parser.add_argument("--methods", nargs="+", default=list(CHANGED[VERSION]))
    parser.add_argument("--version", default=LATEST, help="of the suite whose rules hold")
    parser.add_argument("--backbone", default=SUITES[LATEST].heads.backbone)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rules = SUITES[given.version]
    weights = "imagenet" if "efficientnet" in given.backbone else "none"
    rules = replace(rules, heads=replace(rules.heads, backbone=given.backbone, weights=weights))
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for set_name in given.sets:
        data = open_set(set_name, given.version)
        figures[set_name] = {}
        for name in given.methods:
            scores = measure(data, rules, methods_of(VERSION)[name])
            earlier = read_score(given.version, set_name, name, rules)
            figures[set_name][name] = scores | ({} if earlier is None else {"2026.1": earlier})
            texts = (f"{key} {score:.3f}" for key, score in figures[set_name][name].items())
            print(f"{set_name:10} {name:16} {', '.join(texts)}", flush=True)
    write_figures(given.json, figures)


def measure(data: BenchSet, rules: Suite, method: Method) -> dict[str, float]:
    """Run the trials of a method and its final runs.

    Args:
        data: The set.
        rules: The suite whose rules hold.
        method: The method.

    Returns:
        The mean score of final runs with the settings of the best trial and of the first.
    """
    base = method.options(rules.config(_TRACK), data.vectors)
    settings = [method.settings(number, _TRACK) for number in range(rules.trials)]
    trials = run_trials(data, _TRACK, [with_settings(base, chosen) for chosen in settings])
    best = max(
        range(rules.trials), key=lambda number: -np.inf if trials[number].score is None else trials[number].score
    )
    return {
        "tuned": score_final_runs(data, rules, with_settings(base, settings[best])),
        "defaults": score_final_runs(data, rules, base),
    }


def score_final_runs(data: BenchSet, rules: Suite, config: TrainConfig) -> float:
    """Train with some options by each seed, and score the test items.

    Args:
        data: The set.
        rules: The suite, which has the number of seeds.
        config: The options.

    Returns:
        The mean score of all queries and seeds.
    """
    scores = []
    for seed in range(1, rules.seeds + 1):
        final = run_final(data, _TRACK, replace(config, seed=seed), rules.trials, rules.trials)
        assert final.ranks is not None, final.failed
        scores.append(np.nanmean(score_queries(final.ranks, data.test_distances)["score"]))
    return float(np.mean(scores))


def read_score(version: str, set_name: str, name: str, rules: Suite) -> float | None:
    """Read the score of a method among the published results; None if it has failed or is not there."""
    path = result_path(_RESULTS, version, set_name, track_folder(_TRACK, rules.heads.backbone), name)
    if not path.exists():
        return None
    result = read_result(path)
    return None if result.failed else result.scores["score"].mean


if __name__ == "__main__":
    main()
