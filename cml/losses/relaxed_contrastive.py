"""The relaxed contrastive loss: each pair attracts and repels at once, weighted by its label distance."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.squared_distances import plain_distances
from cml.settings import check_above_zero, check_flag, check_number


class RelaxedContrastiveLoss(ScaledLabelLoss):
    r"""Relaxed contrastive loss over all pairs (anchor a, item j) of a batch.

    The mean over anchors of the sum over the anchor's items j of

        w D^2 + (1 - w) [delta - D]_+^2,   w = exp(-(D_y(a,j) / label_scale)^2 / sigma),

    with D the relative distance: that of two embeddings over the mean distance of the anchor's used items, through
    which the gradient flows as well. Anchors with fewer than 2 used items do not count. The loss is invariant to
    scaling, rotating and shifting the embeddings.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: with w in {0, 1} it is the contrastive loss on relative distances. ``graded-contrastive`` is the same on
    distances as they are.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive ones over a
            sample of training pairs.
        sigma: Width of w, above 0, of squared scaled label distances. The published 1 is for distances of unit vectors;
            two such vectors drawn at random lie at a distance of sqrt 2, so that their typical pair has w = exp(-2).
            sigma = 0.5 gives the same to a pair at the median.
        delta: Relative distance beyond which no pair repels, at least 0; 1 as published.
        normalize: Whether to L2-normalise the embeddings first; published without.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = RelaxedContrastiveLoss(label_scale=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 0.0, 9.0]])):.4f}"  # item 1 is pulled from (1/2)^2, item 2 far enough
        '0.2500'

    Reference:
        Kim, Kim, Cho, Kwak: Embedding Transfer with Label Relaxation for Improved Metric Learning, CVPR 2021. Its mean
        distance counts the anchor's own 0.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Kim et al., CVPR 2021",
        when="Near labels should cluster; pairs farther apart than the mean are left alone.",
    )
    takes_heads = True

    def __init__(
        self, label_scale: Auto = "auto", sigma: float = 0.5, delta: float = 1.0, normalize: bool = False
    ) -> None:
        super().__init__(label_scale)
        self.sigma = check_above_zero("sigma", sigma)
        self.delta = check_number("delta", delta, least=0)
        self.normalize = check_flag("normalize", normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula."""
        number, distances = used.sum(dim=-1), plain_distances(squared)
        counts = number >= 2
        mean = distances.where(used, 0).sum(dim=-1, keepdim=True) / number.clamp(min=1)[:, None]
        relative = distances / mean.where(mean > 0, 1)  # D
        weights = ((labels / self.constant("label_scale")).square() / -self.sigma).exp()  # w
        terms = torch.lerp((self.delta - relative).relu().square(), relative.square(), weights)
        return terms.where(used & counts[:, None], 0).sum(dim=-1), counts
