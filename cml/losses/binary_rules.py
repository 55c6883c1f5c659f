"""Binary rules: which items of a batch are an anchor's positives and which its negatives, from label distances.

They let losses for pairs or triplets of classes run on continuous labels, and are what those losses lose by: behind the
rule, label distances are gone. ``RuleLoss`` is the base of such losses: it holds the settings of a rule, and the
quantile that ``fit`` turns into a distance.
"""

import warnings
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.anchor_blocks import AnchorMean
from cml.losses.label_distance_loss import LabelDistanceLoss, finite_sample
from cml.losses.pairs import check_batch, comparable_pairs
from cml.settings import check_number, check_whole, check_word

RuleName = Literal["threshold", "nearest", "graph"]


class BinaryPairs(NamedTuple):
    """Masks of each anchor's positives and negatives; a pair that is left out is neither."""

    positives: Tensor  # (A, B) bool
    negatives: Tensor  # (A, B) bool


def threshold(label_distances: Tensor, distance: float) -> BinaryPairs:
    """Take the items within ``distance`` of the anchor as positives, all others as negatives; (A, B).

    Example:
        >>> import torch
        >>> threshold(torch.tensor([[0.0, 0.5, 2.0, torch.inf]]), 1.0).positives.tolist()
        [[False, True, False, False]]
    """
    check_number("distance", distance, least=0)
    return _split(label_distances, label_distances <= distance)


def nearest(label_distances: Tensor, k: int) -> BinaryPairs:
    """Take the k nearest items of the anchor within the batch as positives, all others as negatives.

    All items tied with the k-th are positives, so that the order of the columns changes nothing. An anchor with at
    most k usable items has no negative.

    Example:
        >>> import torch
        >>> nearest(torch.tensor([[0.0, 0.5, 2.0, torch.inf]]), 1).negatives.tolist()
        [[False, False, True, False]]
    """
    check_whole("k", k)
    if k > label_distances.shape[1]:
        got = f"Got {k} instead."
        raise UserError(f"The 'k' of nearest(k) must be at most the batch's {label_distances.shape[1]}. {got}")
    usable = label_distances.masked_fill(~comparable_pairs(label_distances), torch.inf)
    return _split(label_distances, label_distances <= usable.kthvalue(k, dim=1, keepdim=True).values)


def graph(label_distances: Tensor, k: int) -> BinaryPairs:
    """Take the anchor's neighbours in a k-nearest-neighbour graph as positives, all others as negatives.

    An item is a positive if it is among the anchor's k nearest in the batch, or the anchor is among its k nearest. The
    latter is known of anchors alone, so items after the first A join only by the anchor's own row. Ties are as in
    ``nearest``.

    Example:
        >>> import torch
        >>> line = torch.tensor([0.0, 1.0, 3.0])
        >>> graph((line[:, None] - line).abs(), 1).positives.int().tolist()  # 1 is the nearest of 2, though not 2 of 1
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]]

    Reference:
        Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
    """
    near = nearest(label_distances, k).positives
    anchors = len(label_distances)
    joined = near.clone()
    joined[:, :anchors] |= near[:, :anchors].T
    return _split(label_distances, joined)


def _split(label_distances: Tensor, near: Tensor) -> BinaryPairs:
    used = comparable_pairs(label_distances)
    return BinaryPairs(used & near, used & ~near)


class RuleLoss(LabelDistanceLoss):
    """Base of the losses that turn label distances into positives and negatives first."""

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

    def open_constants(self) -> tuple[str, ...]:
        """The threshold, if it is a quantile."""
        return () if self.quantile is None else self.constant_names

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the threshold, if it is a quantile.

        Returns the distance by its name; nothing if the settings leave none open.
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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The loss of the pairs that the rule makes of a batch.

        Returns the loss and the triplets (A,) of each anchor.
        """
        look = self.may_check_numbers(embeddings)
        pairs = self.make_pairs(check_batch(embeddings, label_distances, look=look))
        mean = self.mean_of_pairs(embeddings, pairs)
        if look and bool(mean.counts.any()) and not bool(mean.counts.all()):
            warnings.warn(
                "Some anchors have no positive or no negative in the batch and are left out (counted in "
                "skipped_anchors).",
                RuntimeWarning,
                stacklevel=3,
            )
        return mean

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> AnchorMean:
        """The loss of embeddings (B, D) and masks (A, B), with the triplets (A,) of each anchor."""
        raise NotImplementedError
