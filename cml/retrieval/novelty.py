"""Whether items are like known ones: their distance to the nearest known items, against that of the known ones.

The score is a conformal p-value: of new items that are like the known ones, at most a share p has a score of at most p.
Each known item is compared with all others, and not with the new item, as full conformal prediction would. That makes
its distance larger and the score no smaller, so that the bound holds.

Reference: Vovk, Gammerman, Shafer: Algorithmic learning in a random world, 2005, chapter 2; Bates et al.: Testing for
outliers with conformal p-values, Annals of Statistics 51, 2023.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.errors import UserError
from cml.retrieval.other_groups import find_other_groups
from cml.retrieval.search import nearest_embeddings, nearest_others

FEWEST = 40  # known items
MOST = 10_000  # a random sample of more
_NEIGHBORS = 5
_SMALL = 30  # items of a group


class Novelty:
    """Scores of items by features that tell them from known ones.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> novelty = Novelty(rng.normal(size=(400, 8)).astype(np.float32))
        >>> bool(novelty.score(np.full((1, 8), 9, np.float32))[0] < 0.01)
        True
    """

    def __init__(
        self,
        features: Float32,  # (N, F) of known items
        groups: Int64 | None = None,  # (N,) the group of each, whose items are not compared; None for none
    ) -> None:
        if len(features) < FEWEST:
            raise UserError(f"Novelty is measured against at least {FEWEST} known items. Got {len(features)} instead.")
        if len(features) > MOST:
            some = np.random.default_rng(0).choice(len(features), MOST, replace=False)
            features, groups = features[some], None if groups is None else groups[some]
        self._known = np.ascontiguousarray(features, np.float32)
        if groups is None:
            distances = nearest_others(self._known, np.arange(len(self._known)), _NEIGHBORS)[0].mean(axis=1)
        else:
            distances = _find_distances_of_groups(self._known, groups)
        self._of_known = np.sort(distances)

    def score(
        self,
        features: Float32,  # (Q, F)
    ) -> Float64:  # (Q,) the share of known items that are at least as far from others; small for items of another kind
        """Score items."""
        rows = np.ascontiguousarray(features, np.float32)
        near, _ = nearest_embeddings(rows, self._known, _NEIGHBORS)
        farther = len(self._of_known) - np.searchsorted(self._of_known, near.mean(axis=1), side="left")
        scores: Float64 = (1 + farther) / (1 + len(self._of_known))
        return scores


def _find_distances_of_groups(known: Float32, groups: Int64) -> Float32:
    """Mean distances (N,) of known items to the nearest ones of other groups."""
    names, number, counts = np.unique(groups, return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise UserError("Novelty needs known items of at least two groups.")
    distances = np.empty(len(known), np.float32)
    small = np.flatnonzero(counts[number] <= _SMALL)  # of others, all own items would have to be sorted out
    if len(small):
        near, _, are_others = find_other_groups(known[small], known, _NEIGHBORS, number[small], number)
        distances[small] = near.mean(axis=1, where=are_others)
    for large in np.flatnonzero(counts > _SMALL).tolist():
        is_own = number == large
        near, _ = nearest_embeddings(known[is_own], known[~is_own], min(_NEIGHBORS, int((~is_own).sum())))
        distances[is_own] = near.mean(axis=1)
    return distances
