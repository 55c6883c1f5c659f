"""What losses with a binary rule in front share: its settings, and the quantile that ``fit`` turns into a distance.

Not for: the rules themselves (positives.py).
"""

import warnings
from typing import Literal, get_args

import numpy as np
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, finite_sample
from cml.losses.pairs import RowMean
from cml.losses.positives import BinaryPairs, graph, nearest, threshold
from cml.settings import check_number, check_whole, check_word

RuleName = Literal["threshold", "nearest", "graph"]


class RuleLoss(LabelDistanceLoss):
    """Base of the losses that turn label distances into positives and negatives first.

    The settings are those of ``BinaryTripletLoss``; one that belongs to another rule is a ``UserError``.
    """

    constants = ("distance",)
    lacking = "both a positive and a negative"

    def __init__(self, rule: RuleName, k: int | None, distance: float | None, quantile: float | None) -> None:
        super().__init__()
        check_word("rule", rule, get_args(RuleName))
        if rule in ("nearest", "graph"):
            if distance is not None or quantile is not None:
                raise UserError(f"The rule {rule!r} has no distance and no quantile; give k, or rule='threshold'.")
            k = check_whole("k", 5 if k is None else k)
        else:
            if k is not None or (distance is None) == (quantile is None):
                raise UserError("The rule 'threshold' needs either a distance or a quantile, and no k.")
            if distance is not None:
                distance = check_number("distance", distance, least=0)
            elif quantile is not None:
                quantile = check_number("quantile", quantile, least=0, below=1)
        self.rule: RuleName = rule
        self.k = k
        self.distance = distance
        self.quantile = quantile

    def to_find(self) -> tuple[str, ...]:
        """The threshold, if it is a quantile."""
        return () if self.quantile is None else self.constants

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """The threshold, if it is a quantile."""
        if self.quantile is None:
            return {}
        return {"distance": float(np.quantile(finite_sample(label_distances), self.quantile))}

    def pairs(self, label_distances: Tensor) -> BinaryPairs:
        """The positives and negatives of a batch's label distances (A, B)."""
        if self.k is not None:
            return (graph if self.rule == "graph" else nearest)(label_distances, self.k)
        return threshold(label_distances, self.constant("distance") if self.distance is None else self.distance)


def with_warning(mean: RowMean) -> RowMean:
    """``mean``, with a warning if some anchors have no triplet, but not all: that is another."""
    if bool(mean.counts.any()) and not bool(mean.counts.all()):
        warnings.warn(
            "Some anchors have no positive or no negative in the batch and are left out (the module counts them in "
            "left_out).",
            RuntimeWarning,
            stacklevel=3,
        )
    return mean
