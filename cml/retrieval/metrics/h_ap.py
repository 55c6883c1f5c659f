"""h_ap: hierarchical average precision of a query's whole ranking."""

import numpy as np

from cml.array_types import Float32, Float64, Floating, Int64
from cml.retrieval.gains import NEIGHBORS, graded_gains
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo
from cml.retrieval.ranking import LabelBlock, Ranking, retrieved_distances


class HAP(Metric):
    """H-AP of each query; 1 is the order of the labels."""

    needs = "whole_ranking"
    info = MetricInfo(shown="never", compared=False, lowest=0, highest=1)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_h_ap``, (R,)."""
        return ranking.correlations[2]

    def effects(self, ranking: Ranking) -> Effects:
        """Those of all items; gains stay those of the whole gallery."""
        return ranking.correlation_effects(2)

    def oracle_effects(self, labels: LabelBlock) -> None:
        """None: without any item the order of the labels still has 1."""

    def measure_oracle(self, labels: LabelBlock) -> Float64:
        """1, or NaN where nothing in the gallery can be compared: (R,)."""
        return np.where(np.isfinite(labels.ideal[:, 0]), 1.0, np.nan)

    def measure_random(self, ranking: Ranking) -> Float64:
        """The mean over all orders, (R,)."""
        labels = ranking.labels
        gains = -np.sort(-labels.graded_gains, axis=1)  # (R, G) falling
        pairs = gains @ (2.0 * np.arange(gains.shape[1]))  # (R,) sum over ordered pairs of the lower gain
        return _expect_h_ap(gains.sum(axis=1), pairs, np.isfinite(labels.distances).sum(axis=1))

    def random_effects(self, ranking: Ranking) -> Effects:
        """Those of all items on the mean over all orders; gains stay those of the whole gallery."""
        labels = ranking.labels
        order = np.argsort(-labels.graded_gains, axis=1)
        gains = np.take_along_axis(labels.graded_gains, order, axis=1)  # (R, G) falling
        finite = np.isfinite(labels.distances)
        whole, counts = gains.sum(axis=1, keepdims=True), finite.sum(axis=1, keepdims=True)
        behind = whole - np.cumsum(gains, axis=1)
        of_item = 2 * (np.arange(gains.shape[1]) * gains + behind)  # its pairs with the others, in both orders
        pairs = of_item.sum(axis=1, keepdims=True) / 2
        changes = _expect_h_ap(whole - gains, pairs - of_item, counts - 1) - _expect_h_ap(whole, pairs, counts)
        changes[~np.take_along_axis(finite, order, axis=1)] = 0
        return Effects(order, changes[:, :, None])

    def nearest_depth(self, labels: LabelBlock) -> int:
        """The items that the gains depend on."""
        return min(NEIGHBORS, len(labels.distances[0]))


def compute_h_ap(
    scores: Floating,  # (R, G) by which the gallery is ranked, rising
    label_distances: Float32,  # (R, G), infinite where two labels cannot be compared; such items are left out
) -> Float64:  # (R,) float64 in 0..1; NaN where nothing can be compared
    """Hierarchical average precision of each query's whole ranking; 1 is the order of the labels.

    H-AP = sum_k (h_k / r_k) / sum_k g_k with r_k the rank of item k, h_k = g_k + sum over items j before it of
    min(g_j, g_k), and gains g = exp(-d / d_10), d_10 the label distance of the query's 10th nearest item (Ramzi et al.,
    Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, equations 2 to 4; gains of
    continuous labels are cml's). With gains of 0 and 1 it is average precision. It equals graded average precision
    (Robertson, Kanoulas, Yilmaz, SIGIR 2010) where the gain of an item is the chance that its grade counts as relevant.
    """
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    nearest = retrieved_distances(label_distances, label_distances, min(NEIGHBORS, label_distances.shape[1]))
    return rank_correlations(scores, dense_ranks(label_distances), graded_gains(label_distances, nearest))[2]


def _expect_h_ap(
    gains: Float64,  # (...) sums of the gains
    pairs: Float64,  # (...) sums over ordered pairs of the lower gain of the two
    counts: Int64,  # (...) numbers of items that can be compared
) -> Float64:  # (...) NaN where nothing can be compared
    """The mean of H-AP over all orders.

    An item is at each rank r of n as often, and each of the others before it in (r - 1) / (n - 1) of the orders.
    """
    inverse = np.cumsum(np.concatenate([[0.0], 1 / np.arange(1, counts.max(initial=0) + 1)]))[counts]
    inverse = inverse / np.maximum(counts, 1)  # the mean of 1 / r
    of_others = pairs / np.where(counts > 0, gains, 1) * (1 - inverse) / np.maximum(counts - 1, 1)
    return np.where(counts > 0, inverse + of_others, np.nan)
