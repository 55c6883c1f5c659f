"""score@K: the mean label distance between chance, 0, and the oracle, 1."""

from dataclasses import replace

import numpy as np

from cml.array_types import Float64
from cml.retrieval.metrics.all_queries import AllQueriesMetric, QueryTable, QueryValues
from cml.retrieval.metrics.metric import MetricInfo


class Score(AllQueriesMetric):
    """(random - ours) / (random - oracle) of mean label distances of the first K items that can be compared.

    Where label distances are infinite, only comparable items count, in all three terms: a ranking gains nothing by
    items that cannot be compared, and none is ahead of the oracle.
    """

    info = MetricInfo(
        note="(random - value) / (random - oracle) of label_distance; 1 for the oracle; "
        "0 for the average random ranking, of which the row random is a draw",
        compared_ks=(10,),
        highest=1,
    )

    def measure_queries(self, table: QueryTable) -> QueryValues:
        """The ratio of means, with the interval of a ratio."""
        terms = np.array([score_terms(row, table.chance, table.best) for row in table.comparable])
        gains, reaches = terms.transpose(1, 2, 0)  # (Q, N) each
        chance = table.influences["chance"]
        reach = chance - table.influences["best"]
        exists = np.isfinite(reaches).any(axis=0)
        ratio = (chance - table.influences["comparable"]).ratio(reach)
        return QueryValues(over_mean(gains, reaches).T, replace(ratio, mean=np.where(exists, ratio.mean, np.nan)))


def score_terms(
    ours: Float64,  # (Q,) mean label distance of the first K comparable items, NaN where there is none
    chance: Float64,  # (Q,) what a random ranking has in the mean: the mean label distance of all items
    best: Float64,  # (Q,) mean label distance of the K nearest
) -> tuple[Float64, Float64]:  # two (Q,) float64, NaN for a query that is left out
    """Numerator and denominator of the normalised score: its value is the ratio of their means.

    Score = (random - ours) / (random - oracle) of mean label distances: 0 is chance, 1 the order of the labels.
    """
    comparable = np.isfinite(ours) & np.isfinite(chance) & np.isfinite(best)
    gain = np.where(comparable, chance - ours, np.nan)
    reach = np.where(comparable, chance - best, np.nan)
    differs = comparable.any() and np.nanmean(reach) > 1e-6 * np.nanmean(np.where(comparable, chance, np.nan))
    return gain, np.where(differs, reach, np.nan)


def over_mean(
    numerators: Float64,  # (Q,) or (Q, M)
    denominators: Float64,  # an array of the same shape; NaN is left out of the mean
) -> Float64:  # of the same shape; NaN where the mean is 0 or does not exist
    """Divide by the mean of the denominators, so that the mean of the result is the ratio of the means."""
    finite = np.isfinite(denominators)
    means = np.where(finite, denominators, 0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1)
    ratios: Float64 = np.divide(numerators, means, out=np.full_like(numerators, np.nan), where=means != 0)
    return ratios
