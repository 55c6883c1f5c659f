"""The contrastive loss with weights between 0 and 1 in the place of "same or not", on relative distances."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask, ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.pairs import Pairs, RowMean, ones
from cml.losses.row_blocks import mean_over_pairs
from cml.settings import check_above_zero, check_number


class RelaxedContrastiveLoss(ScaledLabelLoss):
    r"""Relaxed contrastive loss over all pairs (anchor a, item j) of a batch.

    The mean over anchors of the sum over the anchor's items j of

        w D^2 + (1 - w) [delta - D]_+^2,   w = exp(-(D_y(a,j) / label_scale)^2 / sigma),

    with D the relative distance ||f_a - f_j|| / mean_k ||f_a - f_k||; the mean is over the anchor's used items, and the
    gradient flows through it. Anchors with fewer than 2 used items do not count. Scaling, turning or shifting the
    embeddings leaves the loss as it is.

    Relations: with w in {0, 1} it is the contrastive loss. ``graded-contrastive`` is the same on distances as they are.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones of training pairs.
        sigma: Width of w, above 0, of squared scaled label distances. The published 1 is for distances of unit vectors;
            two such vectors drawn at random lie at a distance of sqrt 2, so that their typical pair has w = exp(-2).
            sigma = 0.5 gives the same to a pair at the median.
        delta: Relative distance beyond which nothing is pushed, at least 0; 1 as published.
        normalize: L2-normalise the embeddings first; published without.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = RelaxedContrastiveLoss(label_scale=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 0.0, 9.0]])):.4f}"  # item 1 is pulled from (1/2)^2, item 2 far enough
        '0.2500'

    Reference:
        Kim et al.: Embedding Transfer with Label Relaxation for Improved Metric Learning, CVPR 2021. Its mean distance
        counts the anchor's own 0.
    """

    _when = "Near labels should cluster; pairs farther apart than the mean are left alone."
    about = About("O(A B)", "Kim et al., CVPR 2021", _when)

    def __init__(
        self, label_scale: Auto = "auto", sigma: float = 0.5, delta: float = 1.0, normalize: bool = False
    ) -> None:
        super().__init__(label_scale)
        self.sigma = check_above_zero("sigma", sigma)
        self.delta = check_number("delta", delta, least=0)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        scale = self.scale()

        def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
            distances, labels, used = pairs  # (R, B) each
            counted = ones(used, distances)
            number = counted.sum(dim=1)
            mean = (distances * counted).sum(dim=1) / number.clamp(min=1)
            relative = distances * mean.where(mean > 0, 1).reciprocal()[:, None]  # D
            weights = labels.div_(scale).square_().div_(-self.sigma).exp_()  # w
            terms = torch.lerp((self.delta - relative).relu().square(), relative.square(), weights)
            enough = number >= 2
            return (terms * counted).sum(dim=1) * enough, enough

        return mean_over_pairs(embeddings, label_distances, row_values, normalize=self.normalize)


def relaxed_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_scale: float,
    sigma: float = 0.5,
    delta: float = 1.0,
    normalize: bool = False,
) -> Tensor:
    """``RelaxedContrastiveLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return RelaxedContrastiveLoss(label_scale, sigma, delta, normalize).value(embeddings, label_distances, mask)
