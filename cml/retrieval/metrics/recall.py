"""recall@K: whether one of the first K items is relevant, as the field counts Recall@K."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float32, Float64
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo, check_ks, columns_of
from cml.retrieval.ranking import Ranking


class Recall(Metric):
    """Recall@K of class labels, or of labels within a distance."""

    info = MetricInfo(note="one of the first K {relevant}", shown="every_k", lowest=0, highest=1)
    default_ks = (1, 2, 4, 8)

    def choose_ks(self) -> tuple[int, ...]:
        """The K of the options; none by default."""
        return check_ks("recall_ks", self.options.recall_ks, (), self.gallery) if self.options.recall_ks else ()

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_recall``, (R, len(ks))."""
        within = self.options.recall_within
        relevant = ranking.labels.count_relevant(within)
        return compute_recall(ranking.retrieved, relevant, self.ks, within, self.options.singletons_as_misses)

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first K items, and of a query's only relevant item."""
        from cml.retrieval.list_effects import recall_changes

        within, misses = self.options.recall_within, self.options.singletons_as_misses
        relevant, nearest = ranking.labels.count_relevant(within), ranking.labels.nearest[:, 0]
        ks = np.array(self.ks, np.int64)
        changes = recall_changes(ranking.retrieved, ranking.items, nearest, relevant, ks, within, misses)
        return Effects(np.column_stack([ranking.items[:, : ks.max()], nearest]), changes)


def compute_recall(
    retrieved: Float32,  # (R, >= max K) label distances in the order retrieved
    relevant: Float64,  # (R,) number of relevant items of each query in the gallery
    ks: Sequence[int],
    within: float = 0.0,
    singletons_as_misses: bool = False,
) -> Float64:  # (R, len(ks)) float64 of 0 and 1; NaN for a query without a relevant item unless those are counted
    """1 where any of the top K is relevant, else 0; higher is better.

    The field's Recall@K (Jegou and others, Product Quantization for Nearest Neighbor Search, 2011), which is not the
    share of the relevant items that were found. With ``within`` it is that of place recognition, where a place counts
    as found within 25 m (Arandjelovic et al., NetVLAD, CVPR 2016).

    Example:
        >>> compute_recall(np.array([[1, 0, 0]], np.float32), np.array([2.0]), [1, 2])
        array([[0., 1.]])
    """
    at = columns_of(ks, retrieved)
    hits = np.logical_or.accumulate(retrieved[:, : max(ks)] <= within, axis=1)[:, at]
    return np.where(singletons_as_misses | (relevant[:, None] > 0), hits, np.nan)
