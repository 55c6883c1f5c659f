"""Relaxed contrastive loss: each pair is pulled and pushed at once, weighed by how near its labels are."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from cml.losses.label_distance_loss import check_batch, check_number, warn_without_gradient
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.row_blocks import RowMean, RowTerms, mean_over_rows, slopes_of_distances, used_labels

_LACKING = "two items of a usable label distance"


def relaxed_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    label_scale: float = 1.0,
    sigma: float = 1.0,
    delta: float = 1.0,
    normalize: bool = False,
) -> Tensor:
    r"""Relaxed contrastive loss over all pairs (anchor a, item j) of a batch, a block of rows at a time.

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
        sigma: Width of w, above 0, of squared scaled label distances; 1 as published for distances of unit vectors.
        delta: Relative distance beyond which nothing is pushed, at least 0; 1 as published.
        normalize: L2-normalise the embeddings first; published without.

    Returns:
        Scalar. Anchors with fewer than 2 used columns do not count. If none counts, 0 with zero gradient and a warning.

    Raises:
        UserError: an argument has another shape, type or range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = relaxed_contrastive_loss(points, torch.tensor([[0.0, 0.0, 9.0]]))
        >>> f"{loss.item():.4f}"  # item 1 is pulled from (1/2)^2, item 2 is far enough
        '0.2500'

    Reference:
        Kim, Kim, Cho, Kwak: Embedding Transfer with Label Relaxation for Improved Metric Learning, CVPR 2021. Its mean
        distance counts the anchor's own 0.
    """
    _check(sigma, delta)
    check_number("label_scale", label_scale, least=0, open_=True)
    mean = _relaxed_contrastive(embeddings, label_distances, mask, label_scale, sigma, delta, normalize)
    warn_without_gradient(mean.counts, _LACKING)
    return mean.loss


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

    Raises:
        UserError: a setting is out of range; or, at the first batch, "auto" was not fitted.

    Example:
        >>> import torch
        >>> loss = RelaxedContrastiveLoss(label_scale=0.5)
        >>> loss(torch.randn(8, 4), torch.rand(8, 8)).shape
        torch.Size([])
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
        _check(sigma, delta)
        self.sigma = float(sigma)
        self.delta = float(delta)
        self.normalize = normalize

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), label_distances (A, B), result a scalar."""
        mean = _relaxed_contrastive(
            embeddings, label_distances, None, self.scale(), self.sigma, self.delta, self.normalize
        )
        self.count_left_out(mean.counts)
        warn_without_gradient(mean.counts, _LACKING)
        return mean.loss

    def extra_repr(self) -> str:
        """The settings, as they are written."""
        return f"label_scale={self.label_scale!r}, sigma={self.sigma}, delta={self.delta}, normalize={self.normalize}"


def _check(sigma: float, delta: float) -> None:
    check_number("sigma", sigma, least=0, open_=True)
    check_number("delta", delta, least=0)


def _relaxed_contrastive(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None,
    label_scale: float,
    sigma: float,
    delta: float,
    normalize: bool,
) -> RowMean:
    check_batch(embeddings, label_distances, mask)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, used = used_labels(label_distances, mask, rows, squared.dtype)
        number = used.sum(dim=1, keepdim=True)  # (R, 1)
        used &= number >= 2
        weights = labels.div_(label_scale).square_().div_(-sigma).exp_()  # w
        distances = squared.sqrt_()
        mean = distances.where(used, 0).sum(dim=1, keepdim=True) / number.clamp_min(1)  # (R, 1)
        mean = mean.clamp_min_(torch.finfo(mean.dtype).tiny)
        relative = distances / mean  # D
        pull = weights * relative
        push = (1 - weights).mul_((delta - relative).clamp_min_(0))
        values = (pull * relative + push * (delta - relative)).where(used, 0).sum(dim=1)
        slopes = (pull - push).mul_(2).where(used, 0)  # in D
        slopes -= (slopes * relative).sum(dim=1, keepdim=True) / number.clamp_min(1)  # through the mean
        slopes = slopes.where(used, 0).div_(mean)
        return RowTerms(values, number[:, 0] >= 2, slopes_of_distances(slopes, distances))

    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)
