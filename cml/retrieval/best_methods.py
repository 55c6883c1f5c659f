"""Comparisons of several methods with one of them, and with the best, that account for how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cml.array_types import Bools, Float64
from cml.retrieval.mean_interval import LEVEL, MeanEstimate, estimate_means

_DRAWS = 10_000


def find_best(scores: Sequence[Float64], level: float = LEVEL) -> list[int]:
    """Find the methods that are not significantly worse than the best one.

    A method is worse if another one is ahead of it by more than the errors of all its differences explain at once: the
    quantile is that of their maximum. So the method that truly is best is among those found with the probability
    ``level``, however many methods there are (Hsu, Multiple Comparisons, 1996, chapter 4; Mogstad, Romano, Shaikh and
    Wilhelm, Inference for Ranks, Review of Economic Studies 91, 2024). tests/benchmarks/interval_coverage.py measures
    how often it is.

    Args:
        scores: Per method (S, Q) scores of the same seeds and queries, higher is better, or (1, Q) of a method without
            seeds. Queries that lack a score of any method are left out.
        level: The probability.

    Returns:
        Indices of the methods, rising: at least that of the highest mean.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> good, equal, worse = (rng.normal(mean, 1, (3, 200)) for mean in (1.0, 1.0, 0.0))
        >>> find_best([good, equal, worse])
        [0, 1]
    """
    best = []
    for index in range(len(scores)):
        ahead = compare_with(scores, index)
        probability = simultaneous_probability(scores, index, level)
        least = ahead.mean - ahead.error * ahead.critical_values(probability)
        if not (least > 0).any():
            best.append(index)
    return best


def compare_with(scores: Sequence[Float64], reference: int) -> MeanEstimate:
    """Estimate how far each other method is ahead of one, paired by seeds and queries.

    A few seeds may happen to agree. Where several methods have seeds, the variance due to seeds is therefore at least
    the one pooled over all methods, which has more degrees of freedom.

    Args:
        scores: See ``find_best``.
        reference: Index of the one method.

    Returns:
        Estimates of the differences, one per other method in their order.
    """
    values, has_seeds = _as_array(scores)
    others = np.arange(len(scores)) != reference
    estimate = estimate_means(values[:, :, others] - values[:, :, [reference]])
    pooled, pooled_freedom = _pooled_seed_variance(values[:, :, has_seeds])
    pooled_variance = pooled * (has_seeds[others].astype(np.float64) + has_seeds[reference])
    is_larger = pooled_variance > estimate.seed_variance
    return replace(
        estimate,
        seed_variance=np.where(is_larger, pooled_variance, estimate.seed_variance),
        seed_freedom=np.where(is_larger, pooled_freedom, estimate.seed_freedom),
    )


def simultaneous_probability(
    scores: Sequence[Float64], reference: int, level: float = LEVEL, *, two_sided: bool = False
) -> float:
    """The probability of each quantile below which the errors of all differences from one method lie at once.

    The distribution of the largest error is simulated by normal errors with the covariance of the means (Chernozhukov,
    Chetverikov and Kato, Gaussian approximations and multiplier bootstrap for maxima, Annals of Statistics 41, 2013).

    Args:
        scores: See ``find_best``.
        reference: Index of the one method.
        level: The probability that all lie below.
        two_sided: Whether the amounts of the errors are to lie below.

    Returns:
        The probability: ``level`` for one difference, or (1 + level) / 2 if two-sided; larger for several.
    """
    from scipy.special import ndtr

    values, _ = _as_array(scores)
    if len(scores) <= 2 or not values.size:
        return (1 + level) / 2 if two_sided else level
    others = np.arange(len(scores)) != reference
    differences = values[:, :, others] - values[:, :, [reference]]
    covariance = _covariance_of_mean(differences.mean(axis=0)) + _covariance_of_mean(differences.mean(axis=1))
    error = np.sqrt(np.diag(covariance))
    error = np.where(error > 0, error, 1)
    variances, axes = np.linalg.eigh(covariance / np.outer(error, error))
    root = (axes * np.sqrt(np.maximum(variances, 0))) @ axes.T  # the symmetric one: the same on every machine
    errors = np.random.default_rng(0).standard_normal((_DRAWS, len(root))) @ root
    largest = (np.abs(errors) if two_sided else errors).max(axis=1)
    return float(ndtr(np.quantile(largest, level)))


def _as_array(scores: Sequence[Float64]) -> tuple[Float64, Bools]:
    """The scores as (S, Q, K) of the queries that all methods have, and which methods have several seeds: (K,)."""
    seeds = max(map(len, scores))
    values = np.stack([np.broadcast_to(score, (seeds, score.shape[1])) for score in scores], axis=2)
    complete = np.isfinite(values).all(axis=(0, 2))
    return values[:, complete], np.array([len(score) > 1 for score in scores])


def _covariance_of_mean(values: Float64) -> Float64:
    """Covariance (M, M) of the column means of values (N, M); 0 for one row."""
    centred = values - values.mean(axis=0)
    covariance: Float64 = centred.T @ centred / max(1, len(values) * (len(values) - 1))
    return covariance


def _pooled_seed_variance(values: Float64) -> tuple[float, int]:
    """Variance of one method's mean due to seeds, from (S, Q, K) values of all, and its degrees of freedom."""
    seeds, queries, methods = values.shape
    if seeds < 2 or queries < 2 or methods < 2:
        return 0.0, 1
    apart = values - values.mean(axis=2, keepdims=True)  # what a seed does to all methods is in no difference
    seed_effects = apart.mean(axis=1, keepdims=True) - apart.mean(axis=(0, 1))
    remainder = apart - apart.mean(axis=0) - seed_effects
    freedom = (seeds - 1) * (methods - 1)
    of_seeds = (seed_effects**2).sum() / freedom
    of_remainder = (remainder**2).sum() / (freedom * (queries - 1))
    return max(0.0, float(of_seeds - of_remainder / queries) / seeds), freedom
