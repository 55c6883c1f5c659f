"""The retrieval measures written slowly, in plain loops over one query, as the formulas say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np


def ranking(scores: Sequence[float], query: int = 0, seed: int = 0) -> list[int]:
    """By rising score, items of one score in the random order that seed and query give."""
    shuffled = np.random.default_rng((seed, query)).permutation(len(scores)).tolist()
    place = {item: number for number, item in enumerate(shuffled)}
    return [index for _, _, index in sorted((float(score), place[index], index) for index, score in enumerate(scores))]


def expected(measure: Callable[[list[int]], float], scores: Sequence[float]) -> float:
    """The mean of a measure over all orders of the items that sort by rising score."""
    orders = [order for order in itertools.permutations(range(len(scores)))
              if all(scores[a] <= scores[b] for a, b in itertools.pairwise(order))]  # fmt: skip
    return sum(measure(list(order)) for order in orders) / len(orders)


def mean_label_distance(labels: Sequence[float], order: Sequence[int], k: int) -> float:
    total, count = 0.0, 0
    for index in order[:k]:
        if labels[index] != math.inf:
            total += labels[index]
            count += 1
    return total / count if count else math.nan


def ndcg(labels: Sequence[float], order: Sequence[int], k: int) -> float:
    """With the published gain, 2^(-log2(d + 1))."""

    def dcg(ranked: Sequence[int]) -> float:
        total = 0.0
        for rank, index in enumerate(ranked[:k], start=1):
            gain = 2 ** -math.log2(labels[index] + 1) if labels[index] != math.inf else 0.0
            total += gain / math.log2(rank + 1)
        return total

    ideal = dcg(ranking(labels))
    return dcg(order) / ideal if ideal else math.nan


def hit(labels: Sequence[float], order: Sequence[int], k: int, neighbors: int) -> float:
    nearest = sorted(labels)
    border = nearest[neighbors - 1]
    if nearest[0] == math.inf:
        return math.nan
    for index in order[:k]:
        if labels[index] <= border and labels[index] != math.inf:
            return 1.0
    return 0.0


def kendall_tau(labels: Sequence[float], scores: Sequence[float]) -> float:
    used = [(x, y) for x, y in zip(scores, labels, strict=True) if y != math.inf]
    concordant = discordant = only_scores = only_labels = 0
    for i, (x, y) in enumerate(used):
        for u, v in used[:i]:
            sign = (x > u) - (x < u), (y > v) - (y < v)
            concordant += sign[0] * sign[1] > 0
            discordant += sign[0] * sign[1] < 0
            only_scores += sign[0] == 0 and sign[1] != 0
            only_labels += sign[0] != 0 and sign[1] == 0
    untied = concordant + discordant
    product = (untied + only_scores) * (untied + only_labels)
    return (concordant - discordant) / math.sqrt(product) if product else math.nan


def spearman_rho(labels: Sequence[float], scores: Sequence[float]) -> float:
    used = [(x, y) for x, y in zip(scores, labels, strict=True) if y != math.inf]

    def ranks(values: list[float]) -> list[float]:
        return [sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
                for value in values]  # fmt: skip

    first, second = ranks([x for x, _ in used]), ranks([y for _, y in used])
    centre = (len(used) + 1) / 2
    product = sum((x - centre) * (y - centre) for x, y in zip(first, second, strict=True))
    squares = sum((x - centre) ** 2 for x in first) * sum((y - centre) ** 2 for y in second)
    return product / math.sqrt(squares) if squares else math.nan


def h_ap(labels: Sequence[float], order: Sequence[int]) -> float:
    """By pairs of items, with gains exp(-d / that of the 10th nearest)."""
    ranked = [labels[index] for index in order if labels[index] != math.inf]
    if not ranked:
        return math.nan
    scale = sorted(ranked)[:10][-1]
    gains = [math.exp(-label / scale) if scale else float(label == 0) for label in ranked]
    total = 0.0
    for k, gain in enumerate(gains):
        total += sum(min(other, gain) for other in gains[: k + 1]) / (k + 1)
    return total / sum(gains)


def expected_h_ap(labels: Sequence[float]) -> float:
    """The mean of H-AP over all orders, by items, the ranks that they may have, and the others before them."""
    known = [label for label in labels if label != math.inf]
    if not known:
        return math.nan
    scale, count = sorted(known)[:10][-1], len(known)
    gains = [math.exp(-label / scale) if scale else float(label == 0) for label in known]
    total = 0.0
    for k, gain in enumerate(gains):
        others = sum(min(other, gain) for other in gains[:k] + gains[k + 1 :])
        for rank in range(1, count + 1):
            before = (rank - 1) / max(1, count - 1)  # the share of orders in which another item is before this one
            total += (gain + before * others) / rank / count
    return total / sum(gains)
