"""Whether items are like known ones: their distance to the nearest known items, against that of held-out known items.

The score is a conformal p-value: of new items that are like the known ones, a share p has a score of at most p, up to
1 / held-out items.

Reference: Bates et al.: Testing for outliers with conformal p-values, Annals of Statistics 51, 2023.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.errors import UserError
from cml.retrieval.search import nearest_embeddings

FEWEST = 40  # known items
MOST = 20_000  # a random sample of more
_NEIGHBORS = 5


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
        groups: Int64 | None = None,  # (N,) the group of each, which is on one side of the split; None for none
        seed: int = 0,  # of the split into items that are looked for and held-out ones
    ) -> None:
        if len(features) < FEWEST:
            raise UserError(f"Novelty is measured against at least {FEWEST} known items. Got {len(features)} instead.")
        rng = np.random.default_rng(seed)
        if len(features) > MOST:
            some = rng.choice(len(features), MOST, replace=False)
            features, groups = features[some], None if groups is None else groups[some]
        names = np.arange(len(features)) if groups is None else np.unique(groups, return_inverse=True)[1]
        is_held_out = np.isin(names, rng.permutation(names.max() + 1)[: (names.max() + 1) // 2])
        if is_held_out.all() or not is_held_out.any():
            raise UserError("Novelty needs known items of at least two groups.")
        self._known = np.ascontiguousarray(features[~is_held_out], np.float32)
        self._held_out = np.sort(self._distances(features[is_held_out]))

    def score(
        self,
        features: Float32,  # (Q, F)
    ) -> Float64:  # (Q,) the share of known items that are at least as far from others; small for items of another kind
        """Score items."""
        farther = len(self._held_out) - np.searchsorted(self._held_out, self._distances(features), side="left")
        scores: Float64 = (1 + farther) / (1 + len(self._held_out))
        return scores

    def _distances(self, features: Float32) -> Float32:
        """Mean distance to the nearest known items (Q,)."""
        rows = np.ascontiguousarray(features, np.float32)
        near, _ = nearest_embeddings(rows, self._known, min(_NEIGHBORS, len(self._known)))
        means: Float32 = near.mean(axis=1)
        return means
