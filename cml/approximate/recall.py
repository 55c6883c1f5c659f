"""How complete neighbour lists are that come from few label distances, by a sample of items that are looked at closely.

Of each item of the sample, some of the pairs that were not asked for are asked for after all: all of the nearest by the
embedding, and the farther ones the more rarely. One that is nearer than an item of the list stands for as many as its
probability says. The lists that are judged are those before these answers; the result holds the answers as well.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from cml.approximate.asked_pairs import is_in, pair_keys
from cml.approximate.asking import Answers
from cml.array_types import Bools, Float32, Float64, Int64
from cml.distances.nearest import Neighbors

_ITEMS = 32  # in a sample, or more if that leaves ...
_FEWEST, _MOST = 16, 256  # ... pairs of each
_LEVEL = 0.95
_THINNINGS = 16


@dataclass(frozen=True)
class RecallEstimate:
    """The share of the true nearest neighbours that are in the lists.

    Attributes:
        value: The estimate, from 0 to 1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        items: The items that it rests on; 0 if all pairs were asked for.

    Example:
        >>> RecallEstimate(value=0.9, low=0.85, high=0.94, items=200).value
        0.9
    """

    value: float
    low: float
    high: float
    items: int


class Sample(NamedTuple):
    """Pairs by which lists are judged."""

    items: Int64  # (P,) the item whose list is judged, all pairs of an item together
    others: Int64  # (P,) the other item, which was not compared with it
    probabilities: Float64  # (P,) with which the other item was drawn

    def keys(self, count: int) -> Int64:
        """The different keys of the pairs of N items, in order."""
        keys = pair_keys(np.stack([self.items, self.others], axis=1), count)
        _, first = np.unique(keys, return_index=True)
        return keys[np.sort(first)]

    def select(self, answers: Answers, count: int) -> tuple["Sample", Float32]:
        """Select the items all of whose pairs were asked for, of N, and the label distances of these pairs."""
        order = np.argsort(answers.keys)
        ascending = answers.keys[order]
        keys = pair_keys(np.stack([self.items, self.others], axis=1), count)
        is_kept = ~np.isin(self.items, self.items[~is_in(keys, ascending)])
        distances = answers.distances[order[np.searchsorted(ascending, keys[is_kept])]]
        return Sample(self.items[is_kept], self.others[is_kept], self.probabilities[is_kept]), distances

    @classmethod
    def empty(cls) -> "Sample":
        """A sample without pairs."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def draw_sample(
    embeddings: Float32,  # (N, D) embeddings: the nearer a pair that was not asked for, the more likely it is drawn
    asked: Int64,  # keys of the pairs that were asked for, ascending
    calls: int,  # how many pairs are drawn, at most
    rng: np.random.Generator,
) -> Sample:
    """Draw the pairs by which lists are judged."""
    count = len(embeddings)
    pairs_each = min(int(np.clip(calls // _ITEMS, _FEWEST, _MOST)), count - 1)
    chosen = rng.permutation(count)[: calls // max(1, pairs_each)]
    if len(chosen) < 2:
        return Sample.empty()
    cumulated = np.cumsum(_probabilities(count - 1, pairs_each))
    lengths = np.square(embeddings).sum(axis=1)
    parts = [Sample.empty()]
    for item in chosen.tolist():
        others = np.argsort(lengths - 2 * embeddings @ embeddings[item], kind="stable")
        others = others[others != item]
        keys = pair_keys(np.stack([np.full(len(others), item), others], axis=1), count)
        others = others[~is_in(keys, asked)]
        # systematic sampling: each rank with its probability, and always as many
        marks = np.floor(cumulated[: len(others)] + rng.random())
        ranks = np.flatnonzero(np.diff(marks, prepend=0) > 0)
        probabilities = np.diff(cumulated[: len(others)], prepend=0)[ranks]
        parts.append(Sample(np.full(len(ranks), item), others[ranks], probabilities))
    return Sample(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def _probabilities(ranks: int, total: int) -> Float64:
    """Of being drawn, by rank: min(1, a / rank), (ranks,), with the sum ``total``."""
    rank = np.arange(1, ranks + 1)
    low, high = 0.0, float(ranks)
    for _ in range(60):
        middle = (low + high) / 2
        is_more = np.minimum(1, middle / rank).sum() > total
        low, high = (low, middle) if is_more else (middle, high)
    return np.minimum(1, high / rank)


def estimate_recall(
    lists: Neighbors,
    sample: Sample,
    distances: Float32,  # (P,) their label distances
) -> RecallEstimate | None:  # the estimate with Wilson's interval, whose width follows from the spread of the items
    """Estimate which share of the true neighbours is in the lists.

    An item of a list is a true neighbour if it and all that are nearer are at most k. How many are nearer is known but
    for chance. Chance makes the estimate too high, since a list cannot have less than none of its neighbours: by how
    much, the same estimate from a thinned sample tells (simulation and extrapolation: Cook, Stefanski, JASA 1994).
    """
    items, starts, sizes = np.unique(sample.items, return_index=True, return_counts=True)
    if len(items) < 2:
        return None
    rng = np.random.default_rng(0)
    shares = []
    for item, start, size in zip(items.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        part = slice(start, start + size)
        is_nearer = distances[part, None] < lists.distances[item]  # (S, k)
        weights = 1 / sample.probabilities[part]
        kept = 1 / (1 + (1 - 1 / weights))  # so that the variance by chance, weight - 1, is doubled
        is_kept = rng.random((_THINNINGS, size)) < kept
        whole = _listed_share(weights[None], is_nearer)
        shares.append(2 * whole - _listed_share(is_kept * weights / kept, is_nearer))
    return _with_interval(np.array(shares), lists.ids.shape[1])


def _listed_share(
    weights: Float64,  # (R, S) how many items each of a sample stands for, R times
    is_nearer: Bools,  # (S, k) whether it is nearer than each item of the list
) -> float:
    """The share of the true neighbours of an item that its list holds."""
    k = is_nearer.shape[1]
    places = np.arange(1, k + 1) + weights @ is_nearer  # (R, k), of the items of the list among all items
    return float((places <= k).mean())


def _with_interval(shares: Float64, k: int) -> RecallEstimate:
    """The mean of the shares of items, and Wilson's interval of as many neighbours as would spread so by chance."""
    count = len(shares)
    value = float(np.clip(shares.mean(), 0, 1))
    variance = float(shares.var(ddof=1)) / count
    most = count * k / 2  # neighbours, since those of an item are alike
    neighbors = float(np.clip(value * (1 - value) / variance, 1, most)) if variance > 0 else most
    z = float(stdtrit(count - 1, (1 + _LEVEL) / 2))
    width = 1 + z**2 / neighbors
    centre = (value + z**2 / (2 * neighbors)) / width
    half = z * np.sqrt(value * (1 - value) / neighbors + z**2 / (4 * neighbors**2)) / width
    return RecallEstimate(value, float(min(centre - half, value)), float(max(centre + half, value)), count)
