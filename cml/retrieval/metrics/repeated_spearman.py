"""repeated_spearman: pair_spearman of those pairs alone that were judged several times, beside the ceiling by these."""

from cml.retrieval.metrics.metric import Metric, MetricInfo


class RepeatedSpearman(Metric):
    """Spearman's rho over the judged pairs that were judged several times, to compare with the ceiling by these."""

    needs = "pairs"
    info = MetricInfo(note="pair_spearman of pairs judged several times", compared=False, lowest=-1, highest=1)
