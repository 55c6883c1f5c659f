"""Bootstrap intervals of means over queries."""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_CHUNK = 1 << 22  # counts of resampled queries held at a time


def mean_intervals(values: Float64, *, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> Float64:
    """Percentile bootstrap intervals of the column means: queries drawn with replacement (Efron, 1979).

    All columns share the resamples, so a difference of two rankers' columns is a paired comparison.

    Args:
        values: (Q, M), one row per query; NaN is left out of its column, as it is of the mean.
        resamples: Number of resamples; 0 gives NaN.
        level: Share of the resampled means inside the interval.
        seed: Seed of the resampling.

    Returns:
        (M, 2) float64 lower and upper ends; NaN for a column without a value.
    """
    return _ends(_resampled(values, resamples, seed), level)


def ratio_intervals(
    numerators: Float64, denominators: Float64, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Float64:
    """As ``mean_intervals``, of the ratio of two columns' means, both of which have the same resamples."""
    means = _resampled(np.concatenate([numerators, denominators], axis=1), resamples, seed)
    above, below = np.split(means, 2, axis=1)
    return _ends(np.divide(above, below, out=np.full_like(above, np.nan), where=below != 0), level)


def _resampled(values: Float64, resamples: int, seed: int) -> Float64:
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
        drawn = generator.integers(0, queries, (size, queries))
        drawn += queries * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * queries).reshape(size, queries).astype(np.float64)
        totals = counts @ filled
        weights = counts @ present.astype(np.float64) if not complete else np.float64(queries)
        means[start : start + size] = np.divide(totals, weights, out=np.full_like(totals, np.nan), where=weights > 0)
    return means


def _ends(means: Float64, level: float) -> Float64:
    tail = 100 * (1 - level) / 2
    ends = np.full((means.shape[1], 2), np.nan)
    for column, drawn in enumerate(means.T):
        known = drawn[np.isfinite(drawn)]
        if len(known):
            ends[column] = np.percentile(known, [tail, 100 - tail])
    return ends
