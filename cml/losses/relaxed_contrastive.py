"""Relaxed contrastive loss: each pair is pulled and pushed at once, weighed by how near its labels are."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from cml.losses.label_distance_loss import taught
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.pairs import RowMean, compare, mean_of
from cml.losses.settings import check_above_zero, check_number


def relaxed_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    label_scale: float,
    sigma: float = 0.5,
    delta: float = 1.0,
    normalize: bool = False,
) -> Tensor:
    r"""Relaxed contrastive loss over all pairs (anchor a, item j) of a batch.

    The mean over anchors of the sum over the anchor's items j of

        w D^2 + (1 - w) [delta - D]_+^2,   w = exp(-(D_y(a,j) / label_scale)^2 / sigma),

    with D the relative distance ||f_a - f_j|| / mean_k ||f_a - f_k||; the mean is over the anchor's used items, and the
    gradient flows through it. Scaling, turning or shifting the embeddings leaves the loss as it is.

    Relations: with w in {0, 1} it is the contrastive loss on relative distances. ``graded_contrastive_loss`` is the
    same on distances as they are.

    Args:
        embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
        label_distances: (A, B), >= 0, in the label's unit; row a belongs to item a. The anchor's own column and
            infinite entries are left out.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_scale: The label distance that counts as 1, in the label's unit, above 0.
        sigma: Width of w, above 0, of squared scaled label distances; published 1 for distances of unit vectors.
        delta: Relative distance beyond which nothing is pushed, at least 0; 1 as published.
        normalize: L2-normalise the embeddings first; published without.

    Returns:
        Scalar. Anchors with fewer than 2 used columns do not count. If none counts, 0 with zero gradient and a warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = relaxed_contrastive_loss(points, torch.tensor([[0.0, 0.0, 9.0]]), label_scale=1.0)
        >>> f"{loss.item():.4f}"  # item 1 is pulled from (1/2)^2, item 2 is far enough
        '0.2500'

    Reference:
        Kim, Kim, Cho, Kwak: Embedding Transfer with Label Relaxation for Improved Metric Learning, CVPR 2021. Its mean
        distance counts the anchor's own 0.
    """
    check_above_zero("sigma", sigma)
    check_number("delta", delta, least=0)
    check_above_zero("label_scale", label_scale)
    mean = _relaxed_contrastive(embeddings, label_distances, mask, label_scale, sigma, delta, normalize)
    return taught(mean, RelaxedContrastiveLoss.lacking)


class RelaxedContrastiveLoss(ScaledLabelLoss):
    """``relaxed_contrastive_loss`` with settings, the unit of label distances found from the training set.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones over a sample of
            training pairs.
        sigma: Width of the weight, above 0. The published 1 is for distances of unit vectors; two such vectors drawn
            at random lie at a distance of sqrt 2, so that their typical pair has w = exp(-2). sigma = 0.5 gives the
            same to a pair at the median.
        delta: Relative distance beyond which nothing is pushed.
        normalize: L2-normalise the embeddings.
    """

    about: ClassVar[About] = About(
        cost="O(A B)",
        source="Kim et al., CVPR 2021",
        when="Near labels should cluster; beyond a mean distance nothing is asked.",
    )

    def __init__(
        self,
        label_scale: float | Literal["auto"] = "auto",
        sigma: float = 0.5,
        delta: float = 1.0,
        normalize: bool = False,
    ) -> None:
        super().__init__(label_scale)
        self.sigma = check_above_zero("sigma", sigma)
        self.delta = check_number("delta", delta, least=0)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        return _relaxed_contrastive(
            embeddings, label_distances, None, self.scale(), self.sigma, self.delta, self.normalize
        )


def _relaxed_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None,
    label_scale: float,
    sigma: float,
    delta: float,
    normalize: bool,
) -> RowMean:
    distances, labels, used = compare(embeddings, label_distances, mask, normalize=normalize)  # (A, B) each
    number = used.sum(dim=1, keepdim=True)  # (A, 1)
    used &= number >= 2
    mean = distances.where(used, 0).sum(dim=1, keepdim=True) / number.clamp(min=1)  # (A, 1)
    relative = distances / mean.where(mean > 0, 1)  # D
    weights = labels.div_(label_scale).square_().div_(-sigma).exp_()  # w
    terms = torch.lerp((delta - relative).relu().square(), relative.square(), weights)
    return mean_of(terms.where(used, 0), number[:, 0] >= 2)
