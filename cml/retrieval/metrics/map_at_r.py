"""map@r: mean average precision at R of class labels."""

import numpy as np

from cml.array_types import Float32, Float64
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo, over_relevant
from cml.retrieval.metrics.r_precision import relevant_in_top_r
from cml.retrieval.ranking import LabelBlock, Ranking


class MAPAtR(Metric):
    """MAP@R of class labels."""

    needs = "classes"
    info = MetricInfo(lowest=0, highest=1)

    @property
    def columns(self) -> list[str]:
        """The field writes map@r."""
        return ["map@r"]

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_map_at_r``, (R,)."""
        return compute_map_at_r(ranking.retrieved, ranking.labels.count_relevant(0))

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first R items, and of the relevant items behind them."""
        return ranking.class_effects[0]

    def depth(self, labels: LabelBlock) -> int:
        """The largest number of relevant items."""
        return int(labels.count_relevant(0).max())


def compute_map_at_r(
    retrieved: Float32,  # (R, >= the most relevant items) label distances in the order retrieved
    relevant: Float64,  # (R,) number of relevant items of each query in the gallery
) -> Float64:  # (R,) float64 in 0..1; NaN for a query without a relevant item
    """Mean average precision at R: (1/R) sum over ranks i = 1..R of precision at i where item i is relevant, else 0.

    Unlike R-precision it rewards an early relevant item more than a late one (Musgrave, Belongie, Lim: A Metric
    Learning Reality Check, ECCV 2020).

    Example:
        >>> compute_map_at_r(np.array([[1, 0, 0]], np.float32), np.array([2.0]))
        array([0.25])
    """
    hits = relevant_in_top_r(retrieved, relevant)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return over_relevant((precision * hits).sum(axis=1), relevant)
