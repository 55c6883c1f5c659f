"""How often 95 % intervals cover the true value, and the marks of the best methods the best one: by simulation.

    python tests/benchmarks/interval_coverage.py [--parts mean seeds ratio best] [--repetitions 4000] [--json FILE]

Values of queries are drawn from four distributions: normal, exponential, lognormal (sigma 1) and zero-inflated
exponential (half of the values are 0). Parts:

- mean: the mean over n queries, also by Student's t, by a percentile bootstrap and by SciPy's BCa for comparison.
- seeds: the mean over 3 or 5 seeds and n queries. Seeds differ by a standard deviation of 0.05 (small) or 0.5 (large)
  standard deviations of the queries; what is left beside both has 0.5 (``--remainder``).
- ratio: the ratio of two means, with errors in the denominator, and with the denominator held fixed for comparison.
- best: of several equal methods, the share that is marked as best; and, for comparison, if each is compared with the
  highest mean by its own 95 % interval.

Each line gives the coverage in percent. That of the intervals of cml has a Monte Carlo error of about 0.35 with 4,000
repetitions (of "best": less, for all methods count). ``width`` is relative to Student's.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from scipy.special import stdtrit
from scipy.stats import bootstrap

from cml.array_types import Bools, Float64
from cml.retrieval.best_methods import find_best
from cml.retrieval.mean_interval import mean_intervals, ratio_intervals

Figures = dict[str, Any]

DISTRIBUTIONS = ("normal", "exponential", "lognormal", "zero-inflated")
SEED_SPREADS = {"small": 0.05, "large": 0.5}  # standard deviation of seeds over that of queries
_MEANS = {"normal": 0.0, "exponential": 1.0, "lognormal": math.exp(0.5), "zero-inflated": 0.5}
_DEVIATIONS = {"normal": 1.0, "exponential": 1.0, "lognormal": math.sqrt((math.e - 1) * math.e)}
_DEVIATIONS["zero-inflated"] = math.sqrt(0.75)
_CHUNK = 200  # repetitions at a time, so that 500 queries of 5 seeds need little memory


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the coverage of all parts, and write it with ``--json``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--queries", nargs="+", type=int, default=[20, 50, 100, 500])
    parser.add_argument("--distributions", nargs="+", default=list(DISTRIBUTIONS), choices=DISTRIBUTIONS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[3, 5])
    parser.add_argument("--methods", nargs="+", type=int, default=[3, 16])
    parser.add_argument("--remainder", type=float, default=0.5, help="of seed and query together, in deviations")
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--best-repetitions", type=int, default=300)
    parser.add_argument("--bca", type=int, default=0, help="repetitions of SciPy's BCa, which is slow; 0 leaves it out")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: Figures = {}
    for part in options.parts:
        print(f"{part}: coverage in percent of 95 % intervals")
        figures[part] = {}
        for distribution in options.distributions:
            for queries in options.queries:
                found = PARTS[part](distribution, queries, options)
                figures[part].setdefault(distribution, {})[queries] = found
                for title, shares in found.items():
                    texts = [f"{name} {value:.2f}" if "width" in name else f"{name} {100 * value:.1f}"
                             for name, value in shares.items()]  # fmt: skip
                    print(f"  {distribution:13} {queries:4} queries {title:24} {', '.join(texts)}", flush=True)
        covers = [shares["cml"] for by_queries in figures[part].values()
                  for found in by_queries.values() for shares in found.values()]  # fmt: skip
        print(f"  from {100 * min(covers):.1f} to {100 * max(covers):.1f}")
    write_figures(options.json, figures)


def draw(distribution: str, shape: tuple[int, ...], rng: np.random.Generator) -> Float64:
    """Draw values of mean 0 and standard deviation 1."""
    match distribution:
        case "normal":
            values = rng.standard_normal(shape)
        case "lognormal":
            values = rng.lognormal(0, 1, shape)
        case _:
            values = rng.exponential(1, shape)
    if distribution == "zero-inflated":
        values *= rng.random(shape) < 0.5
    return (values - _MEANS[distribution]) / _DEVIATIONS[distribution]


def measure_mean(distribution: str, queries: int, options: argparse.Namespace) -> Figures:
    """Coverage of the mean over queries, and the mean width of intervals."""
    rng = np.random.default_rng(queries)
    half = stdtrit(queries - 1, 0.975) / math.sqrt(queries)
    counts = rng.multinomial(queries, np.full(queries, 1 / queries), 1000) / queries
    hits: dict[str, list[Bools]] = {"cml": [], "Student's t": [], "percentile bootstrap": []}
    misses: list[Bools] = []
    widths: list[float] = []
    for size in _chunks(options.repetitions):
        values = draw(distribution, (queries, size), rng)
        means, deviations = values.mean(axis=0), values.std(axis=0, ddof=1)
        students = np.stack([means - half * deviations, means + half * deviations], axis=1)
        ours = mean_intervals(values)
        percentiles = np.percentile(counts @ values, [2.5, 97.5], axis=0).T
        for name, ends in zip(hits, (ours, students, percentiles), strict=True):
            hits[name].append(_covers(ends))
        misses.append(ours[:, 0] > 0)
        widths.append(float(np.diff(ours).sum() / np.diff(students).sum()))
    found = {name: float(np.concatenate(each).mean()) for name, each in hits.items()}
    found["too high"] = float(np.concatenate(misses).mean())
    found["width"] = float(np.mean(widths))
    if options.bca:
        values = draw(distribution, (options.bca, queries), np.random.default_rng(queries))
        with np.errstate(all="ignore"):
            ends = bootstrap((values,), np.mean, axis=1, n_resamples=1000, rng=np.random.default_rng(0))
        low, high = ends.confidence_interval
        found["BCa"] = float(((low <= 0) & (high >= 0)).mean())
    return {"1 seed": found}


def measure_seeds(distribution: str, queries: int, options: argparse.Namespace) -> Figures:
    """Coverage of the mean over seeds and queries."""
    found = {}
    for seeds in options.seeds:
        for name, spread in SEED_SPREADS.items():
            rng = np.random.default_rng((queries, seeds))
            hits = []
            for size in _chunks(options.repetitions):
                values = _of_seeds(distribution, (seeds, queries, size), spread, options.remainder, rng)
                hits.append(_covers(mean_intervals(values)))
            found[f"{seeds} seeds, spread {name}"] = {"cml": float(np.concatenate(hits).mean())}
    return found


def measure_ratio(distribution: str, queries: int, options: argparse.Namespace) -> Figures:
    """Coverage of a score: the ratio of the mean of what is gained to the mean of what could be, both of one query."""
    found = {}
    truth = 0.4
    for seeds in (1, *options.seeds):
        for name, spread in SEED_SPREADS.items() if seeds > 1 else [("", 0.0)]:
            rng = np.random.default_rng((queries, seeds))
            hits, fixed = [], []
            for size in _chunks(options.repetitions):
                reach = 1 + 0.3 * draw(distribution, (queries, size), rng)
                remainder = options.remainder if seeds > 1 else 0.0
                share = truth + 0.3 * _of_seeds(distribution, (seeds, queries, size), spread, remainder, rng)
                hits.append(_covers(ratio_intervals(reach * share, reach) - truth))
                fixed.append(_covers(mean_intervals(reach * share / reach.mean(axis=0)) - truth))
            title = f"{seeds} seeds, spread {name}" if name else "1 seed"
            shares = {"cml": hits, "denominator held fixed": fixed}
            found[title] = {key: float(np.concatenate(each).mean()) for key, each in shares.items()}
    return found


def measure_best(distribution: str, queries: int, options: argparse.Namespace) -> Figures:
    """The share of equal methods that is marked as best: that of repetitions in which the best one is marked."""
    found = {}
    for methods in options.methods:
        for seeds in options.seeds:
            for name, spread in SEED_SPREADS.items():
                rng = np.random.default_rng((queries, methods, seeds))
                marked, alone = 0, 0
                for _ in range(options.best_repetitions):
                    values = _of_seeds(distribution, (seeds, queries, methods), spread, options.remainder, rng)
                    marked += len(find_best(list(values.transpose(2, 0, 1))))
                    first = int(values.mean(axis=(0, 1)).argmax())
                    gaps = mean_intervals(np.delete(values[:, :, [first]] - values, first, axis=2))
                    alone += 1 + int((gaps[:, 0] <= 0).sum())
                total = options.best_repetitions * methods
                title = f"{methods} methods, {seeds} seeds, {name}"
                found[title] = {"cml": marked / total, "each on its own": alone / total}
    return found


def _of_seeds(
    distribution: str, shape: tuple[int, int, int], spread: float, remainder: float, rng: np.random.Generator
) -> Float64:
    """Values (S, Q, M) of mean 0: effects of queries, of seeds, and of both together, which is as skewed."""
    seeds, _, columns = shape
    values = draw(distribution, shape[1:], rng) + spread * rng.standard_normal((seeds, 1, columns))
    return values + remainder * draw(distribution, shape, rng)


def _covers(ends: Float64) -> Bools:
    """Which intervals (M, 2) contain 0."""
    contains: Bools = (ends[:, 0] <= 0) & (ends[:, 1] >= 0)
    return contains


def _chunks(repetitions: int) -> list[int]:
    """Sizes of parts of the repetitions."""
    return [min(_CHUNK, repetitions - start) for start in range(0, repetitions, _CHUNK)]


PARTS = {"mean": measure_mean, "seeds": measure_seeds, "ratio": measure_ratio, "best": measure_best}


if __name__ == "__main__":
    main()
