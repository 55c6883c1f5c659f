"""Comparisons of several methods with one of them, and with the best, that account for how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cml.array_types import Bools, Float64
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.mean_interval import LEVEL, MeanEstimate, estimate

_DRAWS = 10_000


def find_best(
    scores: Sequence[Float64],  # per method (S, Q) scores of the same seeds and queries, higher is better
    level: float = LEVEL,
) -> list[int]:  # indices of the methods, rising: at least that of the highest mean
    """Find the methods that are not significantly worse than the best one, given the gallery.

    See ``MethodScores.find_best``, which counts gallery items too where their influences are known.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> good, equal, worse = (rng.normal(mean, 1, (3, 200)) for mean in (1.0, 1.0, 0.0))
        >>> find_best([good, equal, worse])
        [0, 1]
    """
    return MethodScores.of_queries(scores).find_best(level)


@dataclass(frozen=True, eq=False)
class MethodScores:
    """What several methods score on the same items, higher is better."""

    values: ItemInfluences  # influences (S, K) of K methods with S seeds; those of a method without seeds are repeated
    has_seeds: Bools  # (K,) which methods have several seeds

    @classmethod
    def of(cls, methods: Sequence[ItemInfluences]) -> MethodScores:
        """Join influences (S,) of the same units of each method, or (1,) of a method without seeds."""
        seeds = max(len(method.mean) for method in methods)
        some = np.arange(seeds)
        each = [method.select(some if len(method.mean) > 1 else 0 * some) for method in methods]
        return cls(ItemInfluences.stack(each, axis=1), np.array([len(method.mean) > 1 for method in methods]))

    @classmethod
    def of_queries(cls, scores: Sequence[Float64]) -> MethodScores:
        """Join scores of queries, given their gallery, see ``find_best``."""
        complete = np.isfinite(np.concatenate(scores)).all(axis=0)
        return cls.of([ItemInfluences.of_queries(score[:, complete]) for score in scores])

    def find_best(self, level: float = LEVEL) -> list[int]:
        """Indices of the methods that are not significantly worse than the best one.

        A method is worse if another one is ahead of it by more than the errors of all its differences explain at once:
        the quantile is that of their maximum. So the method that truly is best is among those found with the
        probability ``level``, however many methods there are (Hsu, Multiple Comparisons, 1996, chapter 4; Mogstad,
        Romano, Shaikh and Wilhelm, Inference for Ranks, Review of Economic Studies 91, 2024).
        tests/benchmarks/item_intervals.py measures how often it is.
        """
        best = []
        for index in range(len(self.has_seeds)):
            ahead = self.compare_with(index)
            probability = self.simultaneous_probability(index, level)
            least = ahead.mean - ahead.error * ahead.critical_values(probability)
            if not (least > 0).any():
                best.append(index)
        return best

    def compare_with(self, reference: int) -> MeanEstimate:
        """Estimate how far each other method is ahead of one, paired by seeds and items; one column each, in order.

        A few seeds may happen to agree. Where several methods have seeds, the variance due to seeds is therefore at
        least the one pooled over all methods, which has more degrees of freedom.
        """
        others = np.arange(len(self.has_seeds)) != reference
        found = estimate(self._differences(reference))
        pooled, pooled_freedom = self._pooled_seed_variance()
        pooled_variance = pooled * (self.has_seeds[others].astype(np.float64) + self.has_seeds[reference])
        is_larger = pooled_variance > found.seed_variance
        return replace(
            found,
            seed_variance=np.where(is_larger, pooled_variance, found.seed_variance),
            seed_freedom=np.where(is_larger, pooled_freedom, found.seed_freedom),
        )

    def simultaneous_probability(self, reference: int, level: float = LEVEL, *, two_sided: bool = False) -> float:
        """The probability of each quantile below which the errors of all differences from one method lie at once.

        The distribution of the largest error is simulated by normal errors with the covariance of the means
        (Chernozhukov, Chetverikov and Kato, Gaussian approximations and multiplier bootstrap for maxima, Annals of
        Statistics 41, 2013).
        """
        from scipy.special import ndtr

        if len(self.has_seeds) <= 2 or not np.isfinite(self.values.mean).all():
            return (1 + level) / 2 if two_sided else level
        differences = self._differences(reference)
        covariance = differences.average().covariance() + _covariance_of_mean(differences.mean)
        error = np.sqrt(np.diag(covariance))
        error = np.where(error > 0, error, 1)
        variances, axes = np.linalg.eigh(covariance / np.outer(error, error))
        root = (axes * np.sqrt(np.maximum(variances, 0))) @ axes.T  # the symmetric one: the same on every machine
        errors = np.random.default_rng(0).standard_normal((_DRAWS, len(root))) @ root
        largest = (np.abs(errors) if two_sided else errors).max(axis=1)
        return float(ndtr(np.quantile(largest, level)))

    def _differences(self, reference: int) -> ItemInfluences:
        others = np.arange(len(self.has_seeds)) != reference
        return self.values.select((slice(None), others)) - self.values.select((slice(None), [reference]))

    def _pooled_seed_variance(self) -> tuple[float, int]:
        """Variance of one method's mean due to seeds, of all methods that have them, and its degrees of freedom."""
        values = self.values.select((slice(None), self.has_seeds))
        seeds, methods = values.mean.shape
        if seeds < 2 or methods < 2:
            return 0.0, 1
        # what a seed does to all methods is in no difference
        apart = values - values.average(axis=1).select((slice(None), None))
        rest = apart - apart.average()
        explained = rest.variances()[0]
        if not np.isfinite(explained).all():
            return 0.0, 1
        freedom = (seeds - 1) * (methods - 1)
        return max(0.0, float((rest.mean**2 - explained).sum()) / freedom / seeds), freedom


def _covariance_of_mean(values: Float64) -> Float64:
    """Covariance (M, M) of the column means of values (N, M); 0 for one row."""
    centred = values - values.mean(axis=0)
    covariance: Float64 = centred.T @ centred / max(1, len(values) * (len(values) - 1))
    return covariance
