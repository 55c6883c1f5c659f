"""How well the similarity of pairs agrees with what people said of them: Spearman's correlation as CxC measures it.

Not for: rankings of a gallery (metrics.py), reading the pairs (cml.runs.pairs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

Float64 = NDArray[np.float64]


def pair_spearman(
    queries: Sequence[Any], scores: Float64, given: Float64, *, resamples: int = 1000, seed: int = 0
) -> Float64:
    """Spearman's rho of P pairs in resamples: half of the queries, and of each of them one pair at random.

    Pairs are few of all, and some items have many: a plain correlation would weigh those most (Parekh et al.,
    Crisscrossed Captions, EACL 2021, section 4, whose figure is the mean over 1,000 resamples).

    Args:
        queries: (P,) the first item of each pair.
        scores: (P,) how similar a method finds the two; only the order counts.
        given: (P,) how similar they are said to be.
        resamples: How many.
        seed: Of the resampling; equal seeds give equal pairs.

    Returns:
        (resamples,) float64 in -1..1; NaN where one side is constant.

    Raises:
        UserError: there are fewer than four queries.

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
    total = (ours * theirs).sum(axis=1)
    found: Float64 = np.divide(total, spread, out=np.full(resamples, np.nan), where=spread > 0)
    return found
