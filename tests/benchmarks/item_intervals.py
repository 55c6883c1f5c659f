"""How often two equally good embeddings are told apart, and how often intervals cover: labels and embeddings are drawn.

    python tests/benchmarks/item_intervals.py [--parts equal power best] [--repetitions 200] [--json FILE]

An embedding shows one-dimensional labels (normal, lognormal, clustered, of few values, classes) with noise, beside a
dimension of noise alone: little noise (good) or much (poor). Each repetition draws new items. Parts:

- equal: two embeddings of the same kind, with independent noise. Per metric: how often the 95 % interval of their
  difference calls one better or worse (5 % asked), how often the interval of one mean covers the mean of all
  repetitions (95 % asked), the mean of the estimated over the true variance of a difference and of a mean, and how
  often an interval over queries, given the gallery, tells the two apart. Items search each other (n), or a gallery of
  their own (Q in G). They are drawn one by one, in groups of five, or by classes that no training saw. Embeddings have
  1, 2, 3 or 5 seeds, whose noise has a share in common.
- power: two unequal embeddings, at three differences; how often they are told apart, and how often a known variance
  tells them apart.
- best: of eight equal embeddings, the share that is marked as best.

200 repetitions show a share of 5 % to within 1.5 points (one standard error), and one of 95 % likewise. Cases of at
most 30 items have three times as many.
"""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

from cml import distances
from cml.array_types import Float64
from cml.retrieval import EvaluateOptions, Evaluation, embedding_ranker, evaluate
from cml.retrieval.best_methods import MethodScores
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.mean_interval import item_intervals, mean_intervals

Figures = dict[str, Any]
NOISE = {"good": 0.3, "poor": 1.5}
POWER_NOISE = (0.72, 0.78, 0.84)  # beside 0.6: differences that a known variance shows in some 30, 60 and 85 of 100
# Standard deviation of the labels that are drawn. That of a sample would make the noise of all items depend on all
# labels, which no interval over items can know.
SPREAD = {"normal": 1.0, "lognormal": 2.16, "clustered": 2.29, "few values": 1.12, "classes": 1.71, "new classes": 1.0}


@dataclass(frozen=True)
class Case:
    """What is drawn: labels, queries, gallery (0 for the queries themselves), items a group, seeds and their share."""

    labels: str
    queries: int
    gallery: int = 0
    noise: str = "good"
    group: int = 1
    seeds: int = 1
    common: float = 0.0
    name: str = field(init=False)

    def __post_init__(self) -> None:
        layout = f"{self.queries} in {self.gallery}" if self.gallery else f"{self.queries}"
        more = f", groups of {self.group}" if self.group > 1 else ""
        if self.seeds > 1:
            more += f", {self.seeds} seeds, {self.common:g} in common"
        object.__setattr__(self, "name", f"{layout} {self.labels}, {self.noise}{more}")


CASES = [
    *(Case("normal", n, noise=noise) for n in (12, 30, 60, 200) for noise in NOISE),
    *(Case(kind, 60) for kind in ("lognormal", "clustered", "few values", "classes")),
    *(Case(kind, 200, noise="poor") for kind in ("lognormal", "few values", "classes")),
    *(Case("normal", *sides) for sides in ((60, 60), (60, 140), (150, 350), (60, 400))),
    *(Case("normal", 60, group=5, noise=noise) for noise in NOISE),
    Case("normal", 60, 140, group=5),
    Case("new classes", 200),
    *(Case("normal", 60, seeds=seeds, common=common) for seeds in (2, 3, 5) for common in (0.0, 0.5, 0.9)),
]
SMALL = 30  # so few queries are drawn three times as often: they cost little
SLOW_CASES = [Case("normal", 1000), Case("normal", 200, 5000)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the shares of all parts, and write them with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["equal", "power", "best"], choices=["equal", "power", "best"])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument(
        "--slow-repetitions", type=int, default=40, help="of 1,000 items, and of 200 in 5,000; 0 for none"
    )
    parser.add_argument("--only", default="", help="cases whose names this regular expression finds")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    figures: Figures = {}
    if "equal" in options.parts:
        figures["equal"] = {}
        for cases, repetitions in ((CASES, options.repetitions), (SLOW_CASES, options.slow_repetitions)):
            for case in cases:
                if repetitions > 1 and re.search(options.only, case.name):
                    times = 3 if case.queries <= SMALL else 1
                    figures["equal"][case.name] = found = measure_equal(case, times * repetitions)
                    for metric, shares in found.items():
                        print(f"{case.name}: {metric}: {_line(shares)}", flush=True)
    if "power" in options.parts:
        figures["power"] = measure_power(options.repetitions)
        for name, shares in figures["power"].items():
            print(f"power: {name}: {_line(shares)}", flush=True)
    if "best" in options.parts:
        figures["best"] = measure_best(options.repetitions)
        print(f"best of eight equal ones, marked: {_line(figures['best'])}", flush=True)
    write_figures(options.json, figures)


def _line(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in shares.items())


def draw_labels(case: Case, rng: np.random.Generator) -> tuple[Float64, list[str]]:
    """Labels of all items as numbers, and the name of each item's group."""
    count = case.queries + case.gallery
    groups = [str(item // case.group) for item in range(count)]
    if case.labels == "new classes":  # the classes are what is drawn
        centres = rng.normal(size=(count // 5,))
        return np.repeat(centres, 5), [str(item // 5) for item in range(count)]
    if case.group > 1:  # items of a group are alike
        numbers = np.repeat(rng.normal(0, 0.8, -(-count // case.group)), case.group)[:count]
        return numbers + rng.normal(0, 0.6, count), groups
    numbers = rng.normal(size=count)
    if case.labels == "lognormal":
        numbers = np.exp(numbers)
    if case.labels == "clustered":
        numbers = rng.integers(0, 8, count) + 0.1 * numbers
    if case.labels in ("few values", "classes"):
        numbers = rng.integers(0, 6 if case.labels == "classes" else 4, count).astype(np.float64)
    return numbers, groups


def draw_embedding(case: Case, labels: Float64, rng: np.random.Generator, noise: float) -> list[Float64]:
    """An embedding (N, 2) for each seed."""
    scale = noise * SPREAD[case.labels]
    shape = (len(labels), 2)
    both, shown = rng.normal(size=shape), np.stack([labels, 0 * labels], axis=1)
    own = [rng.normal(size=shape) for _ in range(case.seeds)] if case.common < 1 else []
    if case.seeds == 1:
        return [shown + scale * both]
    return [shown + scale * (np.sqrt(case.common) * both + np.sqrt(1 - case.common) * each) for each in own]


def run(case: Case, noises: Sequence[float], rng: np.random.Generator) -> Evaluation:
    """Evaluate embeddings of new items; row "method, seed" for each."""
    labels, groups = draw_labels(case, rng)
    embeddings = {
        f"{number}, {seed}": points
        for number, noise in enumerate(noises)
        for seed, points in enumerate(draw_embedding(case, labels, rng, noise))
    }
    are_classes = "classes" in case.labels
    distance = distances.get("classes" if are_classes else "euclidean")
    encoded = distance.encode([str(label) for label in labels] if are_classes else labels)
    queries = slice(0, case.queries)
    gallery = slice(case.queries, None) if case.gallery else queries
    k = max(1, min(10, ((case.gallery or case.queries) - 1) // 4))
    kept: dict[str, Any] = {"distance_ks": (k,), "ndcg_ks": (k,), "hit_ks": (k,), "hit_neighbors": max(1, k // 2)}
    if are_classes:
        kept |= {"recall_ks": (1,), "ndcg_ks": (), "hit_ks": (), "whole_ranking": False}
    is_grouped = case.group > 1 or case.labels == "new classes"
    return evaluate(
        {name: embedding_ranker(points[queries], points[gallery]) for name, points in embeddings.items()},
        distance,
        encoded[queries],
        encoded[gallery],
        EvaluateOptions(threads=1, **kept),
        same_items=not case.gallery,
        oracle=False,
        groups=groups[queries] if is_grouped else None,
        gallery_groups=groups[gallery] if is_grouped and case.gallery else None,
    )


def methods_of(evaluation: Evaluation, metric: str, methods: int, seeds: int) -> MethodScores:
    """The seeds of each method."""
    each = []
    for method in range(methods):
        found = [evaluation.rows[f"{method}, {seed}"][metric].influences for seed in range(seeds)]
        each.append(ItemInfluences.stack([influences for influences in found if influences is not None]))
    return MethodScores.of(each)


def per_query(evaluation: Evaluation, metric: str, method: int, case: Case) -> Float64:
    """Values (S, Q, 1) of one method's seeds."""
    return np.stack([evaluation.rows[f"{method}, {seed}"][metric].per_query for seed in range(case.seeds)])[:, :, None]


def measured(evaluation: Evaluation) -> list[str]:
    """The columns whose intervals count items."""
    return [name for name, result in evaluation.rows["0, 0"].items() if result.over == "items" and name != "h_ap"]


def measure_equal(case: Case, repetitions: int) -> Figures:
    """Shares of each metric for two equal embeddings."""
    rng = np.random.default_rng(len(case.name) * 1000 + case.queries)
    means: dict[str, list[list[float]]] = {}
    ends: dict[str, list[Float64]] = {}
    gaps: dict[str, list[tuple[float, float, float, float, bool]]] = {}
    errors: dict[str, list[float]] = {}
    for _ in range(repetitions):
        found = run(case, [NOISE[case.noise]] * 2, rng)
        for metric in measured(found):
            methods = methods_of(found, metric, 2, case.seeds)
            gap = methods.compare_with(0)
            low, high = gap.intervals()[0]
            of_queries = mean_intervals(per_query(found, metric, 0, case) - per_query(found, metric, 1, case))[0]
            told = bool(of_queries[0] > 0 or of_queries[1] < 0)
            gaps.setdefault(metric, []).append((float(gap.mean[0]), float(gap.error[0]) ** 2, low, high, told))
            ours = methods.values.select((0, 0))
            means.setdefault(metric, []).append([row[metric].mean for row in found.rows.values()])
            ends.setdefault(metric, []).append(item_intervals(ours))
            errors.setdefault(metric, []).append(float(ours.variances()[0]))
    shares = {}
    for metric, values in gaps.items():
        gap, variance, low, high, told = np.array(values).T
        truth = float(np.nanmean(means[metric]))
        low_end, high_end = np.array(ends[metric]).T
        of_mean = float(np.nanvar(np.array(means[metric]).ravel()))
        shares[metric] = {
            "better": float((low > 0).mean()),
            "worse": float((high < 0).mean()),
            "coverage": float(((low_end <= truth) & (truth <= high_end)).mean()),
            "variance of differences": float(np.nanmean(variance) / max(np.nanvar(gap), 1e-300)),
            "variance of means": float(np.nanmean(errors[metric]) / max(of_mean, 1e-300)),
            "told apart over queries": float(told.mean()),
        }
    return shares


def measure_power(repetitions: int) -> Figures:
    """How often two unequal embeddings of 200 items are told apart, by their interval and by a known variance.

    Keys are metric and noise of the second embedding; the first has 0.6.
    """
    case = Case("normal", 200)
    power: Figures = {}
    for noise in POWER_NOISE:
        rng = np.random.default_rng(1)
        gaps: dict[str, list[tuple[float, bool]]] = {}
        for _ in range(repetitions):
            found = run(case, [0.6, noise], rng)
            for metric in measured(found):
                estimate = methods_of(found, metric, 2, 1).compare_with(0)
                low, high = estimate.intervals()[0]
                gaps.setdefault(metric, []).append((float(estimate.mean[0]), bool(low > 0 or high < 0)))
        for metric, values in gaps.items():
            gap, told = np.array(values).T
            known = np.abs(gap) > 1.96 * gap.std(ddof=1)
            power[f"{metric}, {noise}"] = {"told apart": float(told.mean()), "known variance": float(known.mean())}
    return power


def measure_best(repetitions: int) -> dict[str, float]:
    """Of eight equal embeddings of 60 items, the share that is marked as best: 0.95 at least."""
    case, rng = Case("normal", 60), np.random.default_rng(2)
    marked: dict[str, list[int]] = {}
    for _ in range(max(2, repetitions // 2)):
        found = run(case, [NOISE["good"]] * 8, rng)
        for metric in ("label_distance@10", "kendall_tau"):
            sign = 1 if found.rows["0, 0"][metric].higher_is_better else -1
            methods = methods_of(found, metric, 8, 1)
            marked.setdefault(metric, []).append(
                len(MethodScores(methods.values * sign, methods.has_seeds).find_best())
            )
    return {metric: float(np.mean(counts)) / 8 for metric, counts in marked.items()}


if __name__ == "__main__":
    main()
