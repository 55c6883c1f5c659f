"""The score that chooses a head where few label distances are known: the rank correlation over known pairs."""

import functools

import numpy as np
from scipy.stats import rankdata

from cml.array_types import Float32, Float64
from cml.distances.known_pairs import KnownPairs

_FEWEST_PAIRS = 10


class KnownPairsScore:
    """Scores embeddings of some items by Spearman's rank correlation of the distances of their known pairs.

    1 is the order of the label distances, 0 is chance.

    Args:
        pairs: Pairs of the items whose label distances are known.
        items: M.
    """

    def __init__(self, pairs: KnownPairs, items: int) -> None:
        self._pairs, self._items = pairs, items

    @functools.cached_property
    def _label_ranks(self) -> Float64:
        return _standardize_ranks(self._pairs.distances)

    @property
    def tells(self) -> bool:
        """Whether the pairs are enough, and differ enough, to say which embedding is better."""
        return len(self._pairs.first) >= _FEWEST_PAIRS and bool(np.ptp(self._pairs.distances) > 0)

    def score_items(self, embeddings: Float32) -> Float64:
        """Score each item, so that the mean is the correlation, and the spread over items tells its error.

        Each pair is a term of the correlation, and counts half for each of its items. The correlation is a statistic of
        pairs of items, whose jackknife has deviations from the mean twice as large as these: they are doubled.

        Args:
            embeddings: (M, D).

        Returns:
            (M,).
        """
        first, second = self._pairs.first, self._pairs.second
        distances = np.linalg.norm(embeddings[first] - embeddings[second], axis=1)
        products = self._label_ranks * _standardize_ranks(distances)
        sums = np.bincount(first, products, self._items) + np.bincount(second, products, self._items)
        halves: Float64 = sums * self._items / (2 * len(products))
        scores: Float64 = halves.mean() + 2 * (halves - halves.mean())
        return scores


def _standardize_ranks(values: Float32) -> Float64:
    """Ranks of mean 0 and standard deviation 1; 0 where all values are equal."""
    ranks: Float64 = rankdata(values)
    ranks = ranks - ranks.mean()
    deviation = float(ranks.std())
    return ranks / deviation if deviation > 0 else ranks
