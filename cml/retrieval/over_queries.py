"""Statistics of a set of queries: the normalised score, the worst part of the labels, intervals, CxC's correlation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.retrieval.metrics import Float64, Floats

PARTS = 10
FEWEST = 10  # queries of a part; the mean of fewer says little
_CHUNK = 1 << 22  # counts of resampled queries held at a time


def score_terms(ours: Float64, chance: Float64, best: Float64) -> tuple[Float64, Float64]:
    """Numerator and denominator of the normalised score, (Q,) each: its value is the ratio of their means.

    Score = (random - ours) / (random - oracle) of mean label distances: of the first K items, ``ours``, of all items,
    ``chance``, of the K nearest, ``best``. The denominator is NaN where no ranking differs from chance.
    """
    known = np.isfinite(ours) & np.isfinite(chance) & np.isfinite(best)
    gain, reach = np.where(known, chance - ours, np.nan), np.where(known, chance - best, np.nan)
    told = known.any() and np.nanmean(reach) > 1e-6 * np.nanmean(np.where(known, chance, np.nan))
    return gain, np.where(told, reach, np.nan)


def over_mean(numerators: Float64, denominators: Float64) -> Float64:
    """The numerators (Q, M) over the mean of their column's denominators: their own mean is the ratio of the means."""
    known = np.isfinite(denominators)
    means = np.where(known, denominators, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return _ratio(numerators, means, means != 0)


def label_parts(vectors: Floats | None, best: Float64) -> NDArray[np.intp]:
    """The tenth that each query's label belongs to, 0..9.

    Labels of one number: ten equally wide parts of their range, so that rare labels count as much as common ones (Yang
    et al., Delving into Deep Imbalanced Regression, ICML 2021; Ren et al., Balanced MSE, CVPR 2022). Others have no
    range: ten parts of equal numbers by the mean distance ``best`` (Q,) of their K nearest labels, the rarest last.
    """
    if vectors is not None and vectors.shape[1] == 1:
        numbers = vectors[:, 0].astype(np.float64)
        width = (numbers.max() - numbers.min()) or 1.0
        share = (numbers - numbers.min()) / width
        return np.asarray(np.minimum(PARTS * share, PARTS - 1), np.intp)
    parts = np.empty(len(best), np.intp)
    parts[np.argsort(best, kind="stable")] = np.arange(len(best)) * PARTS // len(best)
    return parts


def in_worst_part(ours: Float64, parts: NDArray[np.intp]) -> Float64:
    """``ours`` (Q,) in the part with the largest mean, NaN elsewhere; parts of fewer than 10 queries do not count."""
    known = [np.isfinite(ours) & (parts == part) for part in range(PARTS)]
    usable = [part for part in known if part.sum() >= FEWEST]
    worst = max(usable, key=lambda part: float(ours[part].mean()), default=np.zeros(len(ours), bool))
    return np.where(worst, ours, np.nan)


def mean_intervals(values: Float64, *, resamples: int = 1000, seed: int = 0) -> Float64:
    """95 % bootstrap intervals (M, 2) of column means (Efron, 1979), on shared resamples; NaN without a value."""
    return _ends(_resampled(values, resamples, seed))


def ratio_intervals(numerators: Float64, denominators: Float64, *, resamples: int = 1000, seed: int = 0) -> Float64:
    """As ``mean_intervals``, of the ratio of two columns' means, both of which have the same resamples."""
    means = _resampled(np.concatenate([numerators, denominators], axis=1), resamples, seed)
    above, below = np.split(means, 2, axis=1)
    return _ends(_ratio(above, below, below != 0))


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
        means[start : start + size] = _ratio(totals, weights, weights > 0)
    return means


def _ends(means: Float64) -> Float64:
    ends = np.full((means.shape[1], 2), np.nan)
    for column, drawn in enumerate(means.T):
        known = drawn[np.isfinite(drawn)]
        if len(known):
            ends[column] = np.percentile(known, [2.5, 97.5])
    return ends


def _ratio(above: Float64, below: Any, known: Any) -> Float64:  # noqa: ANN401 - arrays or numbers
    """``above`` over ``below``, NaN where that is not ``known``."""
    ratio: Float64 = np.divide(above, below, out=np.full_like(above, np.nan), where=known)
    return ratio


def pair_spearman(
    queries: Sequence[Any], scores: Float64, given: Float64, *, resamples: int = 1000, seed: int = 0
) -> Float64:
    """Spearman's rho (resamples,) of P pairs in resamples: half of the ``queries``, with one random pair of each.

    A plain correlation would weight items of many pairs most (Parekh et al., Crisscrossed Captions, EACL 2021, section
    4). ``queries`` are the first items, ``scores`` similarities by a method, ``given`` by people.

    Example:
        >>> pair_spearman(list("abcd"), np.array([1.0, 2, 3, 4]), np.array([0.1, 0.5, 0.7, 0.9]), resamples=2)
        array([1., 1.])
    """
    from scipy.stats import rankdata

    names, group = np.unique(np.asarray(queries), return_inverse=True)
    if len(names) < 4:
        raise UserError(f"Similarities of pairs need at least 4 different first items. Got {len(names)} instead.")
    order, counts = np.argsort(group, kind="stable"), np.bincount(group)
    starts = np.cumsum(counts) - counts
    generator = np.random.default_rng(seed)
    drawn = np.argsort(generator.random((resamples, len(names))), axis=1)[:, : len(names) // 2]
    pairs = order[starts[drawn] + (generator.random(drawn.shape) * counts[drawn]).astype(np.intp)]  # (resamples, n)
    ours, theirs = (rankdata(values[pairs], axis=1) for values in (scores, given))
    ours -= ours.mean(axis=1, keepdims=True)
    theirs -= theirs.mean(axis=1, keepdims=True)
    spread = np.sqrt((ours**2).sum(axis=1) * (theirs**2).sum(axis=1))
    return _ratio((ours * theirs).sum(axis=1), spread, spread > 0)
