"""The relaxed contrastive loss: each pair attracts and repels at once, weighted by its label distance."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask
from cml.losses.label_scale import ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import Pairs, as_numbers, mask_label_distances
from cml.losses.row_blocks import Constant, mean_over_pairs, over
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_above_zero, check_flag, check_number


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
    """The relaxed contrastive loss as a function; ``RelaxedContrastiveLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        label_scale: The label distance that counts as 1, above 0.
        sigma: Width of the weights, above 0, of squared scaled label distances.
        delta: Relative distance beyond which no pair repels, at least 0.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if no anchor has two usable items.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or a setting is out of
            range.
    """
    mean = relaxed_contrastive_mean(
        embeddings,
        mask_label_distances(embeddings, label_distances, mask),
        label_scale=check_above_zero("label_scale", label_scale),
        sigma=check_above_zero("sigma", sigma),
        delta=check_number("delta", delta, least=0),
        normalize=normalize,
    )
    return warn_without_terms(mean, RelaxedContrastiveLoss.missing)


def relaxed_contrastive_mean(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    label_scale: Constant,
    sigma: Constant,
    delta: Constant,
    normalize: bool,
) -> RowMean:
    """The formula of ``relaxed_contrastive_loss``.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        label_scale: In the label's unit; (H, 1, 1) for one per head.
        sigma: Divides squared scaled label distances; (H, 1, 1) for one per head.
        delta: Margin of relative distances; (H, 1, 1) for one per head.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and 1 for each anchor that counts.
    """

    def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
        distances, labels, used = pairs  # (R, B) each
        counted = as_numbers(used, distances)
        number = counted.sum(dim=1)
        mean = (distances * counted).sum(dim=-1) / number.clamp(min=1)
        relative = distances * mean.where(mean > 0, 1).reciprocal()[..., None]  # D
        weights = over(over(labels, label_scale).square_(), -sigma).exp_()  # w
        terms = torch.lerp((delta - relative).relu().square(), relative.square(), weights)
        enough = number >= 2
        return (terms * counted).sum(dim=-1) * enough, enough

    return mean_over_pairs(embeddings, label_distances, row_values, normalize=normalize)


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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``relaxed_contrastive_mean`` with the module's settings, of embeddings (B, D), label distances (A, B)."""
        return relaxed_contrastive_mean(
            embeddings,
            label_distances,
            label_scale=self.constant("label_scale"),
            sigma=self.sigma,
            delta=self.delta,
            normalize=self.normalize,
        )
