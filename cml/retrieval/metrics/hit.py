"""hit@K: whether one of the first K items is among the true nearest."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float32, Float64
from cml.retrieval.evaluate_options import HIT_KS, HIT_NEIGHBORS
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo, check_ks, columns_of
from cml.retrieval.ranking import LabelBlock, Ranking

_LARGEST_FRACTION = 10  # by default it is measured if the true nearest are at most 1 / this of the gallery


class Hit(Metric):
    """Hit@K (Kim et al., Deep Metric Learning Beyond Binary Supervision, 2019).

    By default it is not measured where the true nearest items are more than a tenth of the gallery, as a random ranking
    would hit more often than not.
    """

    info = MetricInfo(note="one of the {hit_neighbors} true nearest is found", compared_ks=(10,), lowest=0, highest=1)
    default_ks = HIT_KS

    def choose_ks(self) -> tuple[int, ...]:
        """The K of the options."""
        self.neighbors = choose_hit_neighbors(self.options.hit_neighbors, self.gallery)
        if tuple(self.options.hit_ks) == HIT_KS and self.neighbors * _LARGEST_FRACTION > self.gallery:
            return ()
        return check_ks("hit_ks", self.options.hit_ks, HIT_KS, self.gallery)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_hits``, (R, len(ks))."""
        return compute_hits(ranking.retrieved, ranking.labels.ideal, self.ks, self.neighbors)

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first K items, and of the true nearest, which the next one joins."""
        from cml.retrieval.list_effects import hit_changes

        labels, items = ranking.labels, ranking.items
        nearest, gallery = labels.nearest, labels.distances.shape[1]
        ks = np.array(self.ks, np.int64)
        changes = hit_changes(ranking.retrieved, items, labels.ideal, nearest, ks, self.neighbors, gallery)
        return Effects(np.concatenate([items[:, : ks.max()], nearest[:, : self.neighbors]], axis=1), changes)

    def nearest_depth(self, labels: LabelBlock) -> int:
        """The number of true nearest items, or the largest K."""
        return max(self.neighbors, self.depth(labels))


def choose_hit_neighbors(neighbors: int, gallery: int) -> int:
    """The number of true nearest items that Hit@K looks for: the default is cut to the gallery, others must fit it."""
    return check_ks("hit_neighbors", [neighbors], [HIT_NEIGHBORS], gallery)[0]


def compute_hits(
    retrieved: Float32,  # (R, >= max K) label distances in the order retrieved
    ideal: Float32,  # (R, >= neighbors) the smallest label distances, rising
    ks: Sequence[int],
    neighbors: int = HIT_NEIGHBORS,
) -> Float64:  # (R, len(ks)) float64 of 0 and 1; NaN where nothing in the gallery can be compared
    """1 where any of the top K is among the query's true nearest, else 0; higher is better.

    An item is one of the ``neighbors`` true nearest if its label distance is at most that of the last of them, so that
    tied labels are treated alike.
    """
    at = columns_of(ks, retrieved)
    columns_of([neighbors], ideal)
    border = ideal[:, neighbors - 1, None]  # (R, 1)
    retrieved = retrieved[:, : max(ks)]
    near = (retrieved <= border) & np.isfinite(retrieved)
    hits = np.logical_or.accumulate(near, axis=1)[:, at].astype(np.float64)
    hits[np.isinf(ideal[:, 0])] = np.nan
    return hits
