"""What losses with a binary rule in front share: its settings, and the quantile that ``fit`` turns into a distance.

Not for: the rules themselves (positives.py).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, check_number, finite_sample
from cml.losses.positives import BinaryPairs, check_k, graph, nearest, threshold

RuleName = Literal["threshold", "nearest", "graph"]


class RuleLoss(LabelDistanceLoss):
    """Base of the losses that turn label distances into positives and negatives first.

    Args:
        rule: "nearest" (the k nearest items of the batch are positives), "graph" (so are items whose k nearest the
            anchor is one of) or "threshold" (those within a label distance).
        k: Of "nearest" and "graph". ``None``: 5.
        distance: Of "threshold", in the label's unit.
        quantile: Of "threshold", instead of a distance: the threshold is this quantile of the label distances of a
            sample of training pairs, in [0, 1), found by ``fit``.

    Raises:
        UserError: a setting is out of range or belongs to another rule.
    """

    constants: ClassVar[tuple[str, ...]] = ("distance",)

    def __init__(self, rule: RuleName, k: int | None, distance: float | None, quantile: float | None) -> None:
        super().__init__()
        if rule in ("nearest", "graph"):
            if distance is not None or quantile is not None:
                raise UserError(f"The rule {rule!r} has no distance and no quantile; give k, or rule='threshold'.")
            k = check_k(5 if k is None else k)
        elif rule == "threshold":
            if k is not None or (distance is None) == (quantile is None):
                raise UserError("The rule 'threshold' needs either a distance or a quantile, and no k.")
            if distance is not None:
                distance = check_number("distance", distance, least=0)
            elif quantile is not None:
                quantile = check_number("quantile", quantile, least=0, below=1)
        else:
            raise UserError(f"The 'rule' must be one of threshold, nearest, graph. Got {rule!r} instead.")
        self.rule = rule
        self.k = k
        self.distance = distance
        self.quantile = quantile

    def fit(self, label_distances: Tensor) -> None:
        """Find the threshold from a sample of training pairs, if it is a quantile.

        Args:
            label_distances: (P,) label distances, an item never with itself; infinite ones are left out.

        Raises:
            UserError: the sample has no finite label distance.
        """
        if self.quantile is not None:
            self._fitted = {"distance": float(np.quantile(finite_sample(label_distances).numpy(), self.quantile))}

    def pairs(self, label_distances: Tensor) -> BinaryPairs:
        """The positives and negatives of a batch's label distances (A, B)."""
        if self.k is not None:
            return (graph if self.rule == "graph" else nearest)(label_distances, self.k)
        return threshold(label_distances, self.constant("distance") if self.distance is None else self.distance)

    def rule_repr(self) -> str:
        """The rule's settings, as they are written."""
        rule = {"k": self.k, "distance": self.distance, "quantile": self.quantile}
        return f"rule={self.rule!r}" + "".join(f", {key}={value}" for key, value in rule.items() if value is not None)
