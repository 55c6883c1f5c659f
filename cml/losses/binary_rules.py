"""Binary rules: which items of a batch are an anchor's positives and which its negatives, from label distances.

They let losses for pairs or triplets of classes run on continuous labels, and are what those losses lose by: behind the
rule, label distances are gone.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.own_column import comparable_pairs
from cml.settings import check_number, check_whole

RuleName = Literal["threshold", "nearest", "graph"]


class BinaryPairs(NamedTuple):
    """Masks of each anchor's positives and negatives; a pair that is left out is neither.

    Attributes:
        positives: (A, B) bool.
        negatives: (A, B) bool.
    """

    positives: Tensor
    negatives: Tensor


def threshold(label_distances: Tensor, distance: float) -> BinaryPairs:
    """Take the items within ``distance`` of the anchor as positives, all others as negatives.

    Args:
        label_distances: (A, B), in the label's unit; row a belongs to item a. The anchor's own column and infinite
            entries are neither.
        distance: In the label's unit, at least 0; an item at exactly this distance is a positive.

    Returns:
        The masks.

    Raises:
        UserError: the distance is negative.

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

    Args:
        label_distances: As for ``threshold``.
        k: At least 1, at most B.

    Returns:
        The masks.

    Raises:
        UserError: k is out of range.

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

    Args:
        label_distances: As for ``threshold``.
        k: At least 1, at most B.

    Returns:
        The masks.

    Raises:
        UserError: k is out of range.

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
