"""Intervals of means over seeds and queries as their formulas say, value by value."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy.optimize import brentq
from scipy.stats import t as student


def remove_skewness(quantile: float, skewness: float) -> float:
    """Hall's transformation, JRSS B 54, 1992, equation 2.3."""
    return quantile + skewness * quantile**2 / 3 + skewness**2 * quantile**3 / 27 + skewness / 6


def mean_interval(values: Sequence[Sequence[float]], level: float = 0.95) -> tuple[float, float]:
    """The interval of the mean of values[seed][query], all of which are present.

    Args:
        values: One list per seed, a value per query.
        level: The share of intervals that should cover.

    Returns:
        The ends.
    """
    seeds, queries = len(values), len(values[0])
    mean = sum(map(sum, values)) / (seeds * queries)
    of_seed = [sum(row) / queries - mean for row in values]
    of_query = [sum(row[query] for row in values) / seeds - mean for query in range(queries)]
    query_spread = sum(effect**2 for effect in of_query) / (queries - 1)
    query_variance = query_spread / queries
    seed_variance = 0.0
    if seeds > 1:
        remainder = sum(
            (values[seed][query] - mean - of_seed[seed] - of_query[query]) ** 2
            for seed in range(seeds)
            for query in range(queries)
        ) / ((seeds - 1) * (queries - 1))
        spread = sum(effect**2 for effect in of_seed) / (seeds - 1)
        seed_variance = max(0.0, spread / seeds - remainder / (seeds * queries))
    error = math.sqrt(seed_variance + query_variance)
    if error == 0:
        return mean, mean

    critical = student.ppf((1 + level) / 2, queries - 1)
    if seeds > 1:
        freedom = error**4 / (seed_variance**2 / (seeds - 1) + query_variance**2 / (queries - 1))
        of_seeds = student.ppf((1 + level) / 2, seeds - 1)
        cochran_cox = (seed_variance * of_seeds + query_variance * critical) / error**2
        critical = (student.ppf((1 + level) / 2, freedom) + cochran_cox) / 2
    second = sum(effect**2 for effect in of_query) / queries
    skewness = sum(effect**3 for effect in of_query) / queries / second**1.5 if second else 0.0
    of_mean = skewness * query_spread**1.5 / queries**2 / error**3
    upper, lower = _restore_skewness(critical, of_mean), _restore_skewness(-critical, of_mean)
    return mean - error * max(critical, upper), mean + error * max(critical, -lower)


def _restore_skewness(value: float, skewness: float) -> float:
    return float(brentq(lambda quantile: remove_skewness(quantile, skewness) - value, -1e3, 1e3))
