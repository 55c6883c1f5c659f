"""Binary rules: which items of a batch are an anchor's positives and which its negatives, from label distances.

They let losses for pairs or triplets of classes run on continuous labels, and are what those losses lose by: past the
rule, label distances are gone. Not for drawing a batch; that is a sampler's work.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.pairs import comparable
from cml.settings import check_number, check_whole


class BinaryPairs(NamedTuple):
    """Masks of an anchor's positives and negatives, (A, B) bool each; a pair left out is neither."""

    positives: Tensor
    negatives: Tensor


def threshold(label_distances: Tensor, distance: float) -> BinaryPairs:
    """Positives are the items within ``distance`` of the anchor, negatives all others.

    Args:
        label_distances: (A, B), in the label's unit; row a belongs to item a. The anchor's own column and infinite
            entries are neither.
        distance: In the label's unit, at least 0; an item at exactly this distance is a positive.

    Example:
        >>> import torch
        >>> threshold(torch.tensor([[0.0, 0.5, 2.0, torch.inf]]), 1.0).positives.tolist()
        [[False, True, False, False]]
    """
    check_number("distance", distance, least=0)
    used = comparable(label_distances)
    near = label_distances <= distance
    return BinaryPairs(used & near, used & ~near)


def nearest(label_distances: Tensor, k: int) -> BinaryPairs:
    """Positives are the k nearest items of the anchor within the batch, negatives all others.

    All items tied with the k-th are positives, so that the order of the columns changes nothing. An anchor with at
    most k usable items has no negative.

    Args:
        label_distances: As for ``threshold``.
        k: At least 1, at most B.

    Example:
        >>> import torch
        >>> nearest(torch.tensor([[0.0, 0.5, 2.0, torch.inf]]), 1).negatives.tolist()
        [[False, False, True, False]]
    """
    check_whole("k", k)
    if k > label_distances.shape[1]:
        raise UserError(
            f"The 'k' of nearest(k) must be at most the batch's {label_distances.shape[1]}. Got {k} instead."
        )
    used = comparable(label_distances)
    border = label_distances.masked_fill(~used, torch.inf).kthvalue(k, dim=1, keepdim=True).values
    near = label_distances <= border
    return BinaryPairs(used & near, used & ~near)


def graph(label_distances: Tensor, k: int) -> BinaryPairs:
    """Positives are the anchor's neighbours in a graph: the k nearest of either are joined; negatives are all others.

    An item is a positive if it is among the anchor's k nearest in the batch or the anchor is among its k nearest. The
    latter is known of anchors alone, so items after the first A join only by the anchor's own row. Arguments
    and ties as in ``nearest``.

    Example:
        >>> import torch
        >>> line = torch.tensor([0.0, 1.0, 3.0])
        >>> graph((line[:, None] - line).abs(), 1).positives.int().tolist()  # 1 is the nearest of 2, though not 2 of 1
        [[0, 1, 0], [1, 0, 1], [0, 1, 0]]

    Reference:
        Hadsell, Chopra, LeCun: Dimensionality Reduction by Learning an Invariant Mapping, CVPR 2006.
    """
    near, used = nearest(label_distances, k).positives, comparable(label_distances)
    anchors = len(label_distances)
    joined = near.clone()
    joined[:, :anchors] |= near[:, :anchors].T
    return BinaryPairs(used & joined, used & ~joined)
