"""The ceiling of agreement: how well an embedding can agree with judgements at most, by those that were repeated."""

import numpy as np

from cml.array_types import Float64, Int64

FEWEST_REPEATED = 10  # questions from which a ceiling means something
_HALVES = 50  # random splits of repeated judgements into halves


def estimate_pair_ceiling(
    pair: Int64,  # (J,) which pair each judgement is of
    values: Float64,  # (J,) judged distances
) -> float | None:  # the correlation; None where fewer than 10 pairs were judged several times
    """Estimate the largest rank correlation that an embedding can have with the mean distances of repeated pairs.

    It is the root of their reliability: the mean correlation of two random halves of the judgements, by Spearman and
    Brown's formula.
    """
    from scipy.stats import spearmanr

    counts = np.bincount(pair)
    chosen = counts[pair] > 1
    if int((counts > 1).sum()) < FEWEST_REPEATED:
        return None
    _, place = np.unique(pair[chosen], return_inverse=True)
    some = values[chosen]
    generator = np.random.default_rng(0)
    correlations = []
    for _ in range(_HALVES):
        order = np.lexsort((generator.random(len(some)), place))
        rank = np.arange(len(order)) - np.searchsorted(place[order], place[order])
        in_first = rank < (np.bincount(place) // 2)[place[order]]
        halves = []
        for half in (order[in_first], order[~in_first]):
            halves.append(np.bincount(place[half], some[half]) / np.bincount(place[half]))
        if all(np.ptp(half) > 0 for half in halves):
            correlations.append(spearmanr(*halves)[0])
    agreement = max(0.0, float(np.mean(correlations))) if correlations else 0.0
    return float(np.sqrt(2 * agreement / (1 + agreement)))


def estimate_triplet_ceiling(
    votes: Float64,  # (Q, 2) how often each question got each of its two answers
    anchors: Int64,  # (Q,) the anchor of each
) -> float | None:  # the share; None where fewer than 10 questions were judged several times
    """Estimate the share of the judgements of repeated questions that an embedding can agree with at most.

    It is 1 - e of the flip rate e by which two judgements of one question agree as often as they do, with probability
    (1 - e)^2 + e^2. As in triplet_agreement, an anchor's judgements count the same, and so do all anchors.
    """
    total = votes.sum(axis=1)
    repeated = total > 1
    if repeated.sum() < FEWEST_REPEATED:
        return None
    total, votes = total[repeated], votes[repeated]
    agreeing = (votes * (votes - 1)).sum(axis=1) / (total * (total - 1))  # share of the pairs of judgements
    _, place = np.unique(anchors[repeated], return_inverse=True)
    agreement = float((np.bincount(place, total * agreeing) / np.bincount(place, total)).mean())
    return float((1 + np.sqrt(max(0.0, 2 * agreement - 1))) / 2)
