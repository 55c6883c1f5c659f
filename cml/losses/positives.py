"""Binary rules, which make an anchor's positives and negatives of label distances."""

import warnings
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, finite_sample
from cml.losses.pairs import RowMean, check_batch, comparable
from cml.settings import check_number, check_whole, check_word

RuleName = Literal["threshold", "nearest", "graph"]


class BinaryPairs(NamedTuple):
    """Masks of an anchor's positives and negatives, (A, B) bool each; a pair left out is neither."""

    positives: Tensor
    negatives: Tensor


def threshold(label_distances: Tensor, distance: float) -> BinaryPairs:
    """Positives are the items within ``distance`` of the anchor, negatives all others; the anchor is neither."""
    check_number("distance", distance, least=0)
    return _split(label_distances, label_distances <= distance)


def nearest(label_distances: Tensor, k: int) -> BinaryPairs:
    """Positives are the k nearest items of the anchor within the batch, k at most B, negatives all others.

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
    usable = label_distances.masked_fill(~comparable(label_distances), torch.inf)
    return _split(label_distances, label_distances <= usable.kthvalue(k, dim=1, keepdim=True).values)


def graph(label_distances: Tensor, k: int) -> BinaryPairs:
    """Positives are the anchor's neighbours in a graph: the k nearest of either are joined; negatives are all others.

    An item is a positive if it is among the anchor's k nearest in the batch or the anchor is among its k nearest. The
    latter is known of anchors alone, so items after the first A join only by the anchor's own row. Ties as in
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
    used = comparable(label_distances)
    return BinaryPairs(used & near, used & ~near)


class RuleLoss(LabelDistanceLoss):
    """Base of the losses that make positives and negatives first; a setting of another rule is a ``UserError``."""

    constants = ("distance",)
    lacking = "both a positive and a negative"

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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of the pairs that the rule makes of a batch."""
        return self.mean_of_pairs(embeddings, self.pairs(check_batch(embeddings, label_distances)))

    def mean_of_pairs(self, embeddings: Tensor, pairs: BinaryPairs) -> RowMean:
        """The loss of a batch, with the triplets of each anchor."""
        raise NotImplementedError


def with_warning(mean: RowMean) -> RowMean:
    """``mean``, with a warning if some anchors have no triplet, but not all: that is another."""
    if bool(mean.counts.any()) and not bool(mean.counts.all()):
        said = "Some anchors have no positive or no negative in the batch and are left out"
        warnings.warn(f"{said} (the module counts them in left_out).", RuntimeWarning, stacklevel=3)
    return mean
