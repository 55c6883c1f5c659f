"""Measures of a set of queries that are not means over them: the normalised score, the worst part of the labels."""

import numpy as np
from numpy.typing import NDArray

from cml.retrieval.metrics import Floats

Float64 = NDArray[np.float64]

PARTS = 10
FEWEST = 10  # queries of a part; the mean of fewer says little


def score_terms(ours: Float64, chance: Float64, best: Float64) -> tuple[Float64, Float64]:
    """Numerator and denominator of the normalised score, (Q,) each: its value is the ratio of their means.

    Score = (random - ours) / (random - oracle) of mean label distances: 0 is chance, 1 the order of the labels.

    Args:
        ours: (Q,) mean label distance of the first K items, NaN where there is none.
        chance: (Q,) what a random ranking has in the mean: the mean label distance of all items.
        best: (Q,) mean label distance of the K nearest.

    Returns:
        Two (Q,) float64, NaN for a query that is left out; the denominator is NaN where no ranking differs from chance.
    """
    known = np.isfinite(ours) & np.isfinite(chance) & np.isfinite(best)
    gain, reach = np.where(known, chance - ours, np.nan), np.where(known, chance - best, np.nan)
    told = known.any() and np.nanmean(reach) > 1e-6 * np.nanmean(np.where(known, chance, np.nan))
    return gain, np.where(told, reach, np.nan)


def over_mean(numerators: Float64, denominators: Float64) -> Float64:
    """The numerators (Q, M) over the mean of their column's denominators: their own mean is the ratio of the means."""
    known = np.isfinite(denominators)
    means = np.where(known, denominators, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    ratios: Float64 = np.divide(numerators, means, out=np.full_like(numerators, np.nan), where=means != 0)
    return ratios


def label_parts(vectors: Floats | None, best: Float64) -> NDArray[np.intp]:
    """The tenth that each query's label belongs to, 0..9.

    Labels of one number: ten equally wide parts of the range of the queries' labels, so that rare labels count as much
    as common ones (balanced errors of imbalanced regression: Yang et al., Delving into Deep Imbalanced Regression, ICML
    2021; Ren et al., Balanced MSE, CVPR 2022). Other labels have no range: the queries in the order of the distance of
    their nearest labels, the rarest last, in ten parts of equal numbers.

    Args:
        vectors: (Q, V) labels as vectors, None where they are none.
        best: (Q,) mean label distance of the K nearest; NaN goes last.
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
