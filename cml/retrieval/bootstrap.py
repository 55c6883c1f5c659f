"""Bootstrap intervals of means over queries. Not for: differences between seeds or data sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

_CHUNK = 1 << 22  # counts of resampled queries held at a time


def mean_intervals(values: Float64, *, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> Float64:
    """Percentile bootstrap intervals of the column means: queries drawn with replacement (Efron, 1979).

    All columns share the resamples, so a difference of two rankers' columns is a paired comparison.

    Args:
        values: (Q, M), a row a query; NaN is left out of its column, as it is of the mean.
        resamples: Number of resamples; 0 gives NaN.
        level: Share of the resampled means inside the interval.
        seed: Seed of the resampling.

    Returns:
        (M, 2) float64 lower and upper ends; NaN for a column without a value.
    """
    queries = len(values)
    if resamples == 0:
        return np.full((values.shape[1], 2), np.nan)
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
    tail = 100 * (1 - level) / 2
    ends = np.full((values.shape[1], 2), np.nan)
    for column in np.flatnonzero(present.any(axis=0)):
        drawn_means = means[:, column]
        ends[column] = np.percentile(drawn_means[np.isfinite(drawn_means)], [tail, 100 - tail])
    return ends
