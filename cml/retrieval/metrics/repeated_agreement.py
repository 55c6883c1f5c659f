"""repeated_agreement: triplet_agreement on those questions alone that were judged several times, beside the ceiling."""

from cml.retrieval.metrics.metric import Metric, MetricInfo


class RepeatedAgreement(Metric):
    """The share of an anchor's triplets, of questions judged several times, that an embedding agrees with."""

    needs = "pairs"
    info = MetricInfo(note="triplet_agreement on questions judged several times", compared=False, lowest=0, highest=1)
