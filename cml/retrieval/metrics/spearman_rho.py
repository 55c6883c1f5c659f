"""spearman_rho: Spearman's rho between the embedding distances and the label distances of a query's whole ranking."""

from cml.array_types import Float32, Float64, Floating
from cml.retrieval.item_influences import Effects
from cml.retrieval.metrics.metric import Metric, MetricInfo
from cml.retrieval.ranking import LabelBlock, Ranking


class SpearmanRho(Metric):
    """Spearman's rho of each query; 1 is the order of the labels."""

    needs = "whole_ranking"
    info = MetricInfo(lowest=-1, highest=1)

    def measure(self, ranking: Ranking) -> Float64:
        """As ``compute_spearman_rho``, (R,)."""
        return ranking.correlations[1]

    def effects(self, ranking: Ranking) -> Effects:
        """Those of all items."""
        return ranking.correlation_effects(1)

    def oracle_effects(self, labels: LabelBlock) -> None:
        """None: without any item the order of the labels still has 1."""

    def random_effects(self, ranking: Ranking) -> None:
        """None: without any item a random ranking still has 0 in expectation."""

    def measure_oracle(self, labels: LabelBlock) -> Float64:
        """1, or NaN where all labels are equally far: (R,)."""
        return labels.perfect_correlation

    def measure_random(self, ranking: Ranking) -> Float64:
        """0, what all orders have in the mean, or NaN where all labels are equally far: (R,)."""
        return 0 * ranking.labels.perfect_correlation


def compute_spearman_rho(
    scores: Floating,  # (R, G) by which the gallery is ranked, rising
    label_distances: Float32,  # (R, G), infinite where two labels cannot be compared
) -> Float64:  # (R,) float64 in -1..1; NaN where a side is constant
    """Spearman's rho of each query over the items at finite label distances: Pearson's correlation of average ranks.

    Example:
        >>> compute_spearman_rho(np.array([[1.0, 2.0, 3.0]]), np.array([[0, 2, 1]], np.float32))
        array([0.5])
    """
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    return rank_correlations(scores, dense_ranks(label_distances))[1]
