"""The score that chooses a head: how near the labels of the items are that an embedding finds first."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Bools, Float32, Float64

FIRST = 10  # items that are looked at around each
_SMALLEST_GAP = 1e-6  # relative: between the labels that are found best and those found by chance


class FirstItemsScore:
    """Scores embeddings of some items, each of which looks for the others.

    1 - (d - best) / (chance - best): d is the mean label distance of the first items found, ``best`` that of the
    nearest labels, ``chance`` that of all others. 1 is the best possible, 0 is chance.

    Args:
        label_distances: (N, N); pairs that cannot be compared count as the farthest of all.
        near: (N, N), the pairs that are not looked at: each item and itself, and frames of a film that follow each
            other closely. None: each item and itself.

    Attributes:
        neighbors: Items that are looked at around each: 10, or fewer where there are few items.
    """

    def __init__(self, label_distances: Float32, near: Bools | None = None) -> None:
        known = np.isfinite(label_distances)
        farthest = label_distances[known].max() if known.any() else 0
        self._distances = np.where(known, label_distances, farthest).astype(np.float64)
        self._left_out = np.eye(len(label_distances), dtype=bool) if near is None else near
        fewest = int((~self._left_out).sum(axis=1).min())
        self.neighbors = max(1, min(FIRST, (fewest + 1) // 3))
        self._chance = self._distances[~self._left_out].mean()
        ranked = np.partition(np.where(self._left_out, np.inf, self._distances), self.neighbors - 1, axis=1)
        self._best = ranked[:, : self.neighbors].mean()

    @property
    def tells(self) -> bool:
        """Whether the labels differ enough to say which embedding is better."""
        return bool(self._chance - self._best > _SMALLEST_GAP * self._chance)

    def __call__(self, embeddings: Float32) -> float:
        """Score the embeddings (N, D) of the items by their Euclidean distances."""
        return float(self.score_items(embeddings).mean())

    def score_items(self, embeddings: Float32) -> Float64:
        """The score of each item (N,) for embeddings (N, D); the score of the embeddings is their mean."""
        nearness = 2 * (embeddings @ embeddings.T) - np.einsum("nd,nd->n", embeddings, embeddings)
        nearness[self._left_out] = -np.inf
        first = np.argpartition(-nearness, self.neighbors - 1, axis=1)[:, : self.neighbors]
        means = np.take_along_axis(self._distances, first, axis=1).mean(axis=1)
        scores: Float64 = 1 - (means - self._best) / (self._chance - self._best)
        return scores


def mean_score(scores: Sequence[Float64]) -> float:
    """The mean over splits of the mean score of the items of a split."""
    return float(np.mean([split.mean() for split in scores]))
