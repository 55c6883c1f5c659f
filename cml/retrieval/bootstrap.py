"""Bootstrap intervals of means over queries."""

import numpy as np

from cml.retrieval.array_types import Float64

_CHUNK = 1 << 22  # counts of resampled queries held at a time


def mean_intervals(values: Float64, *, resamples: int = 1000, seed: int = 0) -> Float64:
    """95 % percentile bootstrap intervals of the column means: queries drawn with replacement (Efron, 1979).

    All columns share the resamples, so a difference of two rankers' columns is a paired comparison.

    Args:
        values: (Q, M), one row per query; NaN is left out of its column, as it is of the mean.
        resamples: Number of resamples; 0 gives NaN.
        seed: Random seed of the resampling.

    Returns:
        (M, 2) float64 lower and upper ends; NaN for a column without a value.
    """
    return _percentiles(_resampled_means(values, resamples, seed))


def ratio_intervals(numerators: Float64, denominators: Float64, *, resamples: int = 1000, seed: int = 0) -> Float64:
    """95 % bootstrap intervals of the ratio of two columns' means, both of which have the same resamples.

    Args:
        numerators: (Q, M), one row per query; NaN is left out of its column.
        denominators: (Q, M), likewise.
        resamples: Number of resamples; 0 gives NaN.
        seed: Random seed of the resampling.

    Returns:
        (M, 2) float64 lower and upper ends; NaN for a ratio that does not exist.
    """
    means = _resampled_means(np.concatenate([numerators, denominators], axis=1), resamples, seed)
    above, below = np.split(means, 2, axis=1)
    return _percentiles(np.divide(above, below, out=np.full_like(above, np.nan), where=below != 0))


def _resampled_means(values: Float64, resamples: int, seed: int) -> Float64:
    """Means of the columns of ``values`` (Q, M), of each resample of the queries: (resamples, M), NaN of no value."""
    queries = len(values)
    present = np.isfinite(values)
    filled = np.where(present, values, 0)
    complete = bool(present.all())
    generator = np.random.default_rng(seed)
    chunk = max(1, _CHUNK // queries)
    means = np.empty((resamples, values.shape[1]))
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        sampled = generator.integers(0, queries, (size, queries))
        sampled += queries * np.arange(size)[:, None]
        counts = np.bincount(sampled.ravel(), minlength=size * queries).reshape(size, queries).astype(np.float64)
        totals = counts @ filled
        weights = np.float64(queries) if complete else counts @ present.astype(np.float64)
        means[start : start + size] = np.divide(totals, weights, out=np.full_like(totals, np.nan), where=weights > 0)
    return means


def _percentiles(means: Float64) -> Float64:
    """The 2.5th and 97.5th percentile of each column: (M, 2)."""
    ends = np.full((means.shape[1], 2), np.nan)
    for column, resampled in enumerate(means.T):
        finite = resampled[np.isfinite(resampled)]
        if len(finite):
            ends[column] = np.percentile(finite, [2.5, 97.5])
    return ends
