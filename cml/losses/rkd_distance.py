"""RKD-distance: embedding distances should be label distances, both measured in units of their batch mean."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.label_distance_loss import LabelDistanceLoss, taught
from cml.losses.loss import About
from cml.losses.pairs import RowMean, compare, mean_of

_LACKING = "two items of a usable label distance, or all label distances of the batch are 0"


def rkd_distance_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Tensor | None = None, normalize: bool = False
) -> Tensor:
    r"""Relational distillation of distances over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        h( ||f_a - f_j|| / mean  -  D_y(a,j) / mean_y ),   h(x) = x^2 / 2 for |x| <= 1, else |x| - 1/2

    with mean and mean_y the means of the two distances over all used pairs of the batch. The gradient flows through
    mean as well. Scaling, turning or shifting the embeddings and scaling the label distances leave it as it is.

    Relations: ``log_ratio_loss`` is its cousin on a logarithmic scale: there a near pair counts as much as a far one,
    here far pairs weigh more.

    Args:
        embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        normalize: L2-normalise the embeddings first; published without.

    Returns:
        Scalar. If the batch has fewer than 2 used pairs, or its label distances are all 0, 0 with zero gradient and a
        warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> rkd_distance_loss(points, 10 * torch.cdist(points, points)).item()
        0.0

    Reference:
        Park, Kim, Lu, Cho: Relational Knowledge Distillation, CVPR 2019, equations 5 to 8, with label distances in the
        place of the teacher's. Sums are means here.
    """
    return taught(_rkd_distance(embeddings, label_distances, mask, normalize), _LACKING)


class RKDDistanceLoss(LabelDistanceLoss):
    """``rkd_distance_loss`` with settings.

    Args:
        normalize: L2-normalise the embeddings.
    """

    about: ClassVar[About] = About(
        cost="O(A B)",
        source="Park et al., CVPR 2019",
        when="Embedding distances should be proportional to label distances, far pairs above all.",
    )
    lacking = _LACKING

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        return _rkd_distance(embeddings, label_distances, None, self.normalize)


def _rkd_distance(embeddings: Tensor, label_distances: Tensor, mask: Tensor | None, normalize: bool) -> RowMean:
    distances, labels, used = compare(embeddings, label_distances, mask, normalize=normalize)  # (A, B) each
    pairs = used.sum()
    teaches = (pairs >= 2) & (labels.sum() > 0)
    least = torch.finfo(distances.dtype).tiny
    distances = distances.where(used & teaches, 0)
    found, wanted = (one / (one.sum() / pairs.clamp(min=1)).clamp(min=least) for one in (distances, labels))
    terms = functional.smooth_l1_loss(found, wanted.where(teaches, 0), reduction="none")
    return mean_of(terms, used.sum(dim=1) * teaches)
