"""The base of the losses that turn label distances into positives and negatives first, by a rule of ``binary_rules``.

It holds the settings of the rule, and the quantile that ``fit`` turns into a distance.
"""

import warnings
from typing import get_args

import numpy as np
from torch import Tensor

from cml.errors import UserError
from cml.losses.binary_rules import BinaryPairs, RuleName, graph, nearest, threshold
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.label_distance_sample import finite_sample
from cml.losses.pairs import check_batch
from cml.losses.row_mean import RowMean
from cml.settings import check_number, check_whole, check_word


class RuleLoss(LabelDistanceLoss):
    """Base of the losses that turn label distances into positives and negatives first.

    Args:
        rule: "nearest", "graph" or "threshold".
        k: For "nearest" and "graph": the number of neighbours, at least 1. ``None``: 5.
        distance: For "threshold": the largest label distance of a positive, in the label's unit, at least 0.
        quantile: For "threshold", in place of a distance: this quantile of the label distances of training pairs, in
            [0, 1). ``fit`` finds it.

    Raises:
        UserError: a setting is out of range or belongs to another rule.
    """

    constant_names = ("distance",)
    missing = "both a positive and a negative"

    def __init__(self, rule: RuleName, k: int | None, distance: float | None, quantile: float | None) -> None:
        super().__init__()
        check_word("rule", rule, get_args(RuleName))
        if rule != "threshold":
            if distance is not None or quantile is not None:
                raise UserError(f"The rule {rule!r} has no distance and no quantile; give k, or rule='threshold'.")
            k = check_whole("k", 5 if k is None else k)
        elif k is not None or (distance is None) == (quantile is None):
            raise UserError("The rule 'threshold' needs either a distance or a quantile, and no k.")
        self.rule: RuleName = rule
        self.k = k
        self.distance = None if distance is None else check_number("distance", distance, least=0)
        self.quantile = None if quantile is None else check_number("quantile", quantile, least=0, below=1)

    def unfitted_constants(self) -> tuple[str, ...]:
        """The threshold, if it is a quantile."""
        return () if self.quantile is None else self.constant_names

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the threshold, if it is a quantile.

        Args:
            label_distances: (P,) of training pairs.

        Returns:
            The distance by its name; nothing if the settings leave none open.

        Raises:
            UserError: a label distance is NaN or negative, or none is finite.
        """
        if self.quantile is None:
            return {}
        return {"distance": float(np.quantile(finite_sample(label_distances), self.quantile))}

    def make_pairs(self, label_distances: Tensor) -> BinaryPairs:
        """The positives and negatives of a batch's label distances (A, B), by the rule."""
        if self.k is None:
            return threshold(label_distances, self.constant("distance"))
        if self.rule == "graph":
            return graph(label_distances, self.k)
        return nearest(label_distances, self.k)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of the pairs that the rule makes of a batch.

        Args:
            embeddings: (B, D) floating point.
            label_distances: (A, B).

        Returns:
            The loss and the triplets (A,) of each anchor.
        """
        return self.mean_of_pairs(embeddings, self.make_pairs(check_batch(embeddings, label_distances)))

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> RowMean:
        """The loss of embeddings (B, D) and masks (A, B), with the triplets (A,) of each anchor."""
        raise NotImplementedError


def warn_without_pairs(mean: RowMean) -> RowMean:
    """Warn if some anchors have no triplet, but not all; ``warn_without_terms`` is for all.

    Args:
        mean: The loss and the triplets of each anchor.

    Returns:
        ``mean``.
    """
    if bool(mean.counts.any()) and not bool(mean.counts.all()):
        warnings.warn(
            "Some anchors have no positive or no negative in the batch and are left out (counted in skipped_anchors).",
            RuntimeWarning,
            stacklevel=3,
        )
    return mean
