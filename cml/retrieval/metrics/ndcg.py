"""ndcg@K: normalised discounted cumulative gain of the first K items."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float64
from cml.retrieval.evaluate_options import NDCG_KS
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo, check_ks, columns_of
from cml.retrieval.ranking import LabelBlock, Ranking


class NDCG(Metric):
    """nDCG@K with the gain of the options; 1 is the order of the labels."""

    info = MetricInfo(note="with gain {gain}", compared_ks=(10, 100), lowest=0, highest=1)
    default_ks = NDCG_KS

    def choose_ks(self) -> tuple[int, ...]:
        """The K of the options."""
        return check_ks("ndcg_ks", self.options.ndcg_ks, NDCG_KS, self.gallery)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_ndcg``, (R, len(ks))."""
        return compute_ndcg(*self._gains(ranking), self.ks)

    def effects(self, ranking: Ranking) -> Effects:
        """Those of the first K items and of the K nearest by label; gains stay those of the whole gallery."""
        from cml.retrieval.list_effects import ndcg_changes

        (gains, ideal), depth = self._gains(ranking), max(self.ks)
        nearest, gallery = ranking.labels.nearest, ranking.labels.distances.shape[1]
        changes = ndcg_changes(gains, ranking.items, ideal, nearest, np.array(self.ks, np.int64), gallery)
        return Effects(np.concatenate([ranking.items[:, :depth], nearest[:, :depth]], axis=1), changes)

    def oracle_effects(self, labels: LabelBlock) -> None:
        """None: without any item the order of the labels still has 1."""

    def _gains(self, ranking: Ranking) -> tuple[Float64, Float64]:
        """Gains (R, K + 1) of the first items and of the nearest by label, fewer of a smaller gallery."""
        gain, depth = self.options.gain, min(max(self.ks) + 1, ranking.retrieved.shape[1])
        return ranking.gains(gain, depth), ranking.labels.ideal_gains(gain, depth)

    def measure_oracle(self, labels: LabelBlock) -> Float64:
        """1, or NaN where nothing in the gallery can be compared: (R, len(ks))."""
        gains = labels.ideal_gains(self.options.gain, max(self.ks))
        return compute_ndcg(gains, gains, self.ks)


def compute_ndcg(
    gains: Float64,  # (R, >= max K) gains in the order retrieved, from ``compute_gains``
    ideal_gains: Float64,  # (R, >= max K) gains in the order of the label distance
    ks: Sequence[int],
) -> Float64:  # (R, len(ks)) float64; NaN where the ideal gain is zero (nothing in the gallery can be compared)
    """Normalised discounted cumulative gain of the top K; 1 is the order of the labels, higher is better.

    DCG@K = sum over ranks k = 1..K of gain_k / log2(k + 1), divided by the DCG@K of the gallery sorted by label
    distance (Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, 2002).
    """
    at = columns_of(ks, gains)
    columns_of(ks, ideal_gains)
    depth = max(ks)
    discounts = 1 / np.log2(np.arange(2, depth + 2))  # (depth,)
    reached = np.cumsum(gains[:, :depth] * discounts, axis=1)[:, at]
    ideal = np.cumsum(ideal_gains[:, :depth] * discounts, axis=1)[:, at]
    return np.where(ideal > 0, reached / np.where(ideal > 0, ideal, 1), np.nan)
