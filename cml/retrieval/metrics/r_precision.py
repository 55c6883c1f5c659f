"""r_precision: the fraction of the first R items that has the query's class, R the number of such items."""

import numpy as np

from cml.array_types import Float32, Float64
from cml.errors import UserError
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo, over_relevant
from cml.retrieval.ranking import LabelBlock, Ranking


class RPrecision(Metric):
    """R-precision of class labels."""

    needs = "classes"
    info = MetricInfo(lowest=0, highest=1)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_r_precision``, (R,)."""
        return compute_r_precision(ranking.retrieved, ranking.labels.count_relevant(0))

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first R items, and of the relevant items behind them."""
        return ranking.class_effects[1]

    def depth(self, labels: LabelBlock) -> int:
        """The largest number of relevant items."""
        return int(labels.count_relevant(0).max())


def compute_r_precision(
    retrieved: Float32,  # (R, >= the most relevant items) label distances in the order retrieved
    relevant: Float64,  # (R,) number of relevant items of each query in the gallery
) -> Float64:  # (R,) float64 in 0..1; NaN for a query without a relevant item
    """The fraction of the top R that is relevant, R the number of relevant items of the query; higher is better.

    Example:
        >>> compute_r_precision(np.array([[0, 1, 0]], np.float32), np.array([2.0]))
        array([0.5])
    """
    return over_relevant(relevant_in_top_r(retrieved, relevant).sum(axis=1), relevant)


def relevant_in_top_r(
    retrieved: Float32,  # (R, >= the most relevant items) label distances in the order retrieved
    relevant: Float64,  # (R,) number of relevant items of each query in the gallery
) -> Float64:  # (R, the most relevant items) float64
    """1 where one of a query's first R items is relevant, else 0."""
    depth = int(relevant.max(initial=0))
    if depth > retrieved.shape[1]:
        raise UserError(f"A query has {depth} relevant items, but only {retrieved.shape[1]} were retrieved.")
    in_top_r = np.arange(depth) < relevant[:, None]
    hits: Float64 = ((retrieved[:, :depth] == 0) & in_top_r).astype(np.float64)
    return hits
