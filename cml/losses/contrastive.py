"""The contrastive loss with a similarity between 0 and 1 in the place of "same or not", graded or relaxed.

``GradedContrastiveLoss`` is the one to copy for a loss of your own over label distances: a formula over pairs in plain
torch, of which autograd makes the gradient. ``@cml.losses.register("name")`` gives it a name.
"""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask, ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.pairs import Pairs, RowMean, ones
from cml.losses.row_blocks import mean_over_pairs
from cml.settings import check_above_zero, check_number


class GradedContrastiveLoss(ScaledLabelLoss):
    r"""Generalised contrastive loss (GCL) over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        psi D^2 / 2 + (1 - psi) [margin - D]_+^2 / 2,   psi = [1 - D_y(a,j) / (reach label_scale)]_+

    with D the Euclidean distance of embeddings and psi the graded similarity: 1 at label distance 0, falling in a
    straight line to 0 at ``reach`` times ``label_scale``. For label distances that are 1 - overlap, as between layouts,
    ``label_scale`` 1 makes psi the overlap, the published similarity; with "auto" half of all pairs have similarity 0,
    as most of the published task's have. Turning or shifting the embeddings leaves the loss as it is where they are not
    normalised.
    Relations: with psi in {0, 1} it is the contrastive loss. ``relaxed-contrastive`` is the same on relative distances.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones of training pairs.
        reach: Label distance from which on the similarity is 0, in units of ``label_scale``, above 0.
        margin: Distance beyond which nothing is pushed, at least 0; 0.5 as published, for normalised embeddings.
        normalize: L2-normalise the embeddings first, as published.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> loss = GradedContrastiveLoss(label_scale=1.0, margin=4.0, normalize=False)
        >>> loss(points, torch.tensor([[0.0, 0.5, 2.0]])).item()
        1.5

    Reference:
        Leyva-Vallina, Strisciuglio, Petkov: Data-efficient Large Scale Place Recognition with Graded Similarity
        Supervision, CVPR 2023. psi as a function of a label distance is cml's.
    """

    _when = "Labels overlap by a degree from 0 to 1, and most pairs do not overlap."
    about = About("O(A B)", "Leyva-Vallina et al., CVPR 2023", _when)
    lacking = "an item of a usable label distance"

    def __init__(
        self, label_scale: Auto = "auto", reach: float = 1.0, margin: float = 0.5, normalize: bool = True
    ) -> None:
        super().__init__(label_scale)
        self.reach = check_above_zero("reach", reach)
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        reach = self.reach * self.scale()

        def row_values(pairs: Pairs) -> tuple[Tensor, Tensor]:
            distances, labels, used = pairs  # (R, B) each
            similarity = labels.div_(-reach).add_(1).clamp_(min=0)  # psi
            push, pull = (self.margin - distances).relu().square(), distances.square()
            terms = torch.lerp(push, pull, similarity)  # psi of the pull, 1 - psi of the push
            counted = ones(used, terms)
            return (terms * counted).sum(dim=1) / 2, counted.sum(dim=1).long()

        return mean_over_pairs(embeddings, label_distances, row_values, normalize=self.normalize)


def graded_contrastive_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_scale: float,
    margin: float = 0.5,
    normalize: bool = True,
) -> Tensor:
    """``GradedContrastiveLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True.

    The similarity is 0 from the label distance ``label_scale`` on.
    """
    loss = GradedContrastiveLoss(label_scale, margin=margin, normalize=normalize)
    return loss.value(embeddings, label_distances, mask)


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
