"""Confidence intervals of means over items, and over seeds and items together; not of differences to the best.

What items do to a mean comes from ``ItemInfluences``; intervals from values of queries alone hold given their gallery.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from cml.array_types import Float64
from cml.retrieval.item_influences import ItemInfluences

LEVEL = 0.95
_NEARLY_SYMMETRIC = 1e-8  # below this skewness the cube root loses more digits than the transformation changes


@dataclass(frozen=True, eq=False)
class MeanEstimate:
    """Means of M columns over seeds and queries, and what is known of their errors.

    The variance of a mean is the sum of what seeds and items contribute. Its skewness is that of the items, which
    weighs the less, the more the seeds differ.
    """

    mean: Float64  # (M,) means of the present values; NaN where there are none
    seed_variance: Float64  # (M,) variance of the mean due to seeds; 0 for one seed, NaN for one value alone
    item_variance: Float64  # (M,) variance of the mean due to queries; 0 for one query
    seed_freedom: Float64  # (M,) degrees of freedom of ``seed_variance``: the number of seeds less 1, at least 1
    item_freedom: Float64  # (M,) degrees of freedom of ``item_variance``: the number of queries less 1, at least 1
    item_skewness: Float64  # (M,) skewness of the mean over queries: theirs over the root of their number

    def select(self, column: int) -> MeanEstimate:
        """The estimate of one column."""
        return MeanEstimate(**{field.name: getattr(self, field.name)[[column]] for field in fields(self)})

    @property
    def error(self) -> Float64:
        """(M,) standard errors of the means."""
        error: Float64 = np.sqrt(self.seed_variance + self.item_variance)
        return error

    def critical_values(self, probability: float) -> Float64:  # (M,) quantiles
        """Quantiles of a studentised mean whose variance has two parts, seeds and queries.

        Satterthwaite's quantile (Biometrics Bulletin 2, 1946) is too small where a few seeds dominate, and Cochran and
        Cox's (Experimental Designs, 1950) too large where both parts matter: their mean is between them, and covers.
        Of one part alone both are Student's t.
        """
        from scipy.special import stdtrit  # the quantile itself: scipy.stats takes half a second to import

        seeds, queries = self.seed_variance, self.item_variance
        variance = seeds + queries
        known = variance > 0
        share = np.divide(seeds, variance, out=np.zeros_like(seeds), where=known)
        freedom = 1 / (share**2 / self.seed_freedom + (1 - share) ** 2 / self.item_freedom)
        of_seeds = stdtrit(self.seed_freedom, probability)
        of_queries = stdtrit(self.item_freedom, probability)
        cochran_cox = share * of_seeds + (1 - share) * of_queries
        quantiles: Float64 = (stdtrit(freedom, probability) + cochran_cox) / 2
        return quantiles

    def intervals(self, level: float = LEVEL) -> Float64:  # (M, 2) lower and upper ends; NaN for a mean of one value
        """Confidence intervals, each end at least as far from the mean as without the correction of skewness.

        The quantiles are corrected by the monotone transformation that removes the skewness of a studentised mean
        (Hall, On the removal of skewness by transformation, JRSS B 54, 1992, equation 2.3).
        """
        critical = self.critical_values((1 + level) / 2)
        error = self.error
        variance = self.seed_variance + self.item_variance
        share = np.divide(self.item_variance, variance, out=np.zeros_like(error), where=variance > 0)
        skewness = self.item_skewness * share**1.5
        below = np.maximum(critical, _undo_skewness_removal(critical, skewness))
        above = np.maximum(critical, -_undo_skewness_removal(-critical, skewness))
        return np.stack([self.mean - error * below, self.mean + error * above], axis=1)


def estimate(
    values: ItemInfluences,  # influences of shape (S, M): S seeds of M columns
) -> MeanEstimate:
    """Estimate means over seeds of what is measured on the same items, with the variances due to seeds and to items.

    What the seeds differ by is due to themselves as far as it exceeds what the items explain of the differences between
    seeds (Searle, Casella and McCulloch, Variance Components, 1992, section 4.3).
    """
    present = np.isfinite(values.mean)
    seeds = present.sum(axis=0)
    mean = values.average()
    variance, freedom, skewness = mean.variances()
    is_known = np.isfinite(variance)
    seed_variance = np.where(is_known, 0, np.full(variance.shape, np.nan))
    if len(present) > 1:
        apart = values - mean
        explained = np.nan_to_num(apart.variances()[0])
        beyond = np.where(present, apart.mean**2 - explained, 0).sum(axis=0)
        between = np.maximum(beyond, 0) / (np.maximum(seeds - 1, 1) * np.maximum(seeds, 1))
        seed_variance = np.where(seeds > 1, between, seed_variance)
    return MeanEstimate(
        mean.mean,
        seed_variance,
        np.where(is_known, variance, 0),
        np.maximum(seeds - 1.0, 1),
        np.where(is_known, freedom, 1),
        np.where(is_known, skewness, 0),
    )


def estimate_means(values: Float64) -> MeanEstimate:
    """Estimate means over seeds and queries of values (S, Q, M), given the gallery; NaN is left out of its column.

    With values missing the estimates are approximate: every seed and query has the same weight.
    """
    return estimate(ItemInfluences.of_queries(np.moveaxis(values, 1, -1)))


def item_intervals(values: ItemInfluences) -> Float64:
    """95 % intervals (..., 2) of single means, of influences of any shape."""
    flat = ItemInfluences(
        **{
            field.name: (part := getattr(values, field.name)).reshape(
                1, values.mean.size, *part.shape[values.mean.ndim :]
            )
            for field in fields(values)
        }
    )
    return estimate(flat).intervals().reshape(*values.mean.shape, 2)


def mean_intervals(
    values: Float64,  # (Q, M), one row per query, or (S, Q, M), one per seed and query
) -> Float64:  # (M, 2) float64 lower and upper ends; NaN for a column with one value or none
    """95 % intervals of column means over queries, or over seeds and queries together.

    tests/benchmarks/interval_coverage.py measures how often they cover, given the gallery.

    Example:
        >>> mean_intervals(np.array([[1.0], [2.0], [3.0]])).round(2).tolist()
        [[-0.48, 4.48]]
    """
    return estimate_means(values if values.ndim == 3 else values[None]).intervals()


def linearize_ratio(
    numerators: Float64,  # (Q, M), one row per query, or (S, Q, M), one per seed and query
    denominators: Float64,  # an array of a shape that broadcasts to it, NaN likewise
) -> Float64:  # of the shape of ``numerators``; NaN where either is, and in a column whose mean denominator is 0
    """Values whose mean is the ratio of two means, and whose error is the ratio's to first order (the delta method).

    They are R + (numerator - R denominator) / mean denominator, where R is the ratio of the means (Cochran, Sampling
    Techniques, 3rd ed., section 6.4). Where numerator and denominator are equal they are 1 exactly: the score of the
    oracle has no error.
    """
    both = np.isfinite(numerators) & np.isfinite(denominators)
    axes = tuple(range(numerators.ndim - 1))
    above, below = (np.where(both, part, 0).sum(axis=axes) for part in (numerators, denominators))
    counts = both.sum(axis=axes)
    ratio = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    rest = np.where(both, numerators - ratio * denominators, np.nan)
    linear: Float64 = ratio + rest * np.divide(counts, below, out=np.full(below.shape, np.nan), where=below != 0)
    return linear


def ratio_intervals(
    numerators: Float64,  # (Q, M), one row per query, or (S, Q, M); see ``linearize_ratio``
    denominators: Float64,
) -> Float64:  # (M, 2) float64 lower and upper ends; NaN for a ratio that does not exist
    """95 % intervals of ratios of two means, both of which are estimates."""
    return mean_intervals(linearize_ratio(numerators, denominators))


def _undo_skewness_removal(quantile: Float64, skewness: Float64) -> Float64:
    """Solve y = t + a t^2 / 3 + a^2 t^3 / 27 + a / 6 for t, where a is the skewness of the mean."""
    skewed = np.abs(skewness) > _NEARLY_SYMMETRIC
    a = np.where(skewed, skewness, 1)
    return np.where(skewed, 3 / a * (np.cbrt(1 + a * (quantile - a / 6)) - 1), quantile)
