"""label_distance@K: the mean label distance of the first K items."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.retrieval.evaluate_options import DISTANCE_KS
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import LABEL_DISTANCE, Metric, MetricInfo, check_ks, columns_of
from cml.retrieval.ranking import Ranking


class LabelDistanceAtK(Metric):
    """Mean label distance of the first K items (Kim et al., Deep Metric Learning Beyond Binary Supervision, 2019)."""

    info = MetricInfo(higher_is_better=False, unit=LABEL_DISTANCE, compared_ks=(1, 10), lowest=0)
    default_ks = DISTANCE_KS

    def choose_ks(self) -> tuple[int, ...]:
        """The K of the options."""
        return check_ks("distance_ks", self.options.distance_ks, DISTANCE_KS, self.gallery)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_label_distance``, (R, len(ks))."""
        return compute_label_distance(ranking.retrieved, self.ks)

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first K items."""
        return label_distance_effects(ranking.retrieved, ranking.items, self.ks)


def label_distance_effects(retrieved: Float32, items: Int64, ks: Sequence[int]) -> Effects:
    """Effects on ``compute_label_distance`` of lists (R, K + 1) of label distances and items, or of all items."""
    from cml.retrieval.list_effects import label_distance_changes

    changes = label_distance_changes(retrieved, np.array(ks, np.int64))
    return Effects(items[:, : changes.shape[1]], changes)


def compute_label_distance(
    retrieved: Float32,  # (R, >= max K) label distances in the order retrieved
    ks: Sequence[int],
) -> Float64:  # (R, len(ks)) float64 in the unit of the label distance
    """Mean label distance of the top K of each query; lower is better.

    Items that cannot be compared (infinite) are left out of their query's mean, so that a ranking which retrieves many
    of them can be below the ideal one; nDCG counts them as misses.
    """
    at = columns_of(ks, retrieved)
    retrieved = retrieved[:, : max(ks)]
    finite = np.isfinite(retrieved)
    totals = np.cumsum(np.where(finite, retrieved, 0), axis=1, dtype=np.float64)[:, at]
    counts = np.cumsum(finite, axis=1)[:, at]
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
