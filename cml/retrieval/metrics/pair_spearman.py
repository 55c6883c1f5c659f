"""pair_spearman: agreement with the similarity of pairs that people see, as Crisscrossed Captions (CxC) measures it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.errors import UserError
from cml.retrieval.metrics.metric import Metric, MetricInfo


class PairSpearman(Metric):
    """Spearman's rho over pairs of items that people have compared; ``cml evaluate --pairs`` adds it."""

    needs = "pairs"
    info = MetricInfo(
        note="correlation with the similarity that people see, its interval over resamples",
        compared=False,
        lowest=-1,
        highest=1,
    )


def compute_pair_spearman(
    queries: Sequence[Any],  # (P,) the first item of each pair
    scores: Float64,  # (P,) similarities by a method; only the order counts
    human_scores: Float64,  # (P,) similarities as people see them
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Float64:  # (resamples,) float64 in -1..1; NaN where one side is constant
    """Spearman's rho of P pairs in resamples: half of the queries, with one random pair of each.

    Some items have many pairs, and a plain correlation would weight those most (Parekh et al., Crisscrossed Captions,
    EACL 2021, section 4, which reports the mean over 1,000 resamples).

    Example:
        >>> compute_pair_spearman(list("abcd"), np.array([1.0, 2, 3, 4]), np.array([0.1, 0.5, 0.7, 0.9]), resamples=2)
        array([1., 1.])
    """
    from scipy.stats import rankdata

    names, group = np.unique(np.asarray(queries), return_inverse=True)
    if len(names) < 4:
        raise UserError(f"Similarities of pairs need at least 4 different first items. Got {len(names)} instead.")
    order, counts = np.argsort(group, kind="stable"), np.bincount(group)
    starts = np.cumsum(counts) - counts
    generator = np.random.default_rng(seed)
    sampled = np.argsort(generator.random((resamples, len(names))), axis=1)[:, : len(names) // 2]
    offsets = (generator.random(sampled.shape) * counts[sampled]).astype(np.intp)
    pairs = order[starts[sampled] + offsets]  # (resamples, queries // 2)
    ours, theirs = (rankdata(values[pairs], axis=1) for values in (scores, human_scores))
    ours -= ours.mean(axis=1, keepdims=True)
    theirs -= theirs.mean(axis=1, keepdims=True)
    spread = np.sqrt((ours**2).sum(axis=1) * (theirs**2).sum(axis=1))
    covariance = (ours * theirs).sum(axis=1)
    correlations: Float64 = np.divide(covariance, spread, out=np.full(resamples, np.nan), where=spread > 0)
    return correlations
