"""triplet_agreement: how often an embedding orders two items as people did who judged which is nearer to a third."""

import numpy as np

from cml.array_types import Float64, Int64
from cml.retrieval.metrics.metric import Metric, MetricInfo


class TripletAgreement(Metric):
    """The share of the judged triplets of an anchor that an embedding agrees with; it is measured of such labels."""

    needs = "pairs"
    info = MetricInfo(note="judged triplets agreed with, mean over anchors", lowest=0, highest=1)


def compute_triplet_agreement(
    near: Float64,  # (T,) distances from the anchor to the item that was judged to be nearer
    far: Float64,  # (T,) those to the other one
    anchors: Int64,  # (T,) positions of the anchors
    counts: Int64,  # (T,) how often each triplet was judged so
    items: int,  # N
) -> Float64:  # (N,) shares; equal distances count half, and an item that is no anchor is NaN
    """The share of judgements that agree with distances, for each anchor.

    Example:
        >>> near, far = np.array([1.0, 2.0]), np.array([3.0, 1.0])
        >>> compute_triplet_agreement(near, far, np.array([0, 0]), np.array([3, 1]), 2)
        array([0.75,  nan])
    """
    agrees: Float64 = np.where(near < far, 1.0, np.where(near == far, 0.5, 0.0))
    total = np.bincount(anchors, counts, items)
    agreeing = np.bincount(anchors, counts * agrees, items)
    shares: Float64 = np.divide(agreeing, total, out=np.full(items, np.nan), where=total > 0)
    return shares
