"""Soft-target cross-entropy: how an anchor's items share its attention should follow from their label distances."""

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask, ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.row_blocks import RowTerms
from cml.settings import check_above_zero


class SoftTargetLoss(ScaledLabelLoss):
    r"""Cross-entropy of a softmax of label distances and one of embedding distances.

    The mean over anchors a of

        -sum_j p_j log q_j,   p = softmax_j(-D_y(a,j) / label_temperature),   q = softmax_j(-D(f_a,f_j) / temperature)

    with D the squared Euclidean distance of embeddings and j over the anchor's used items; anchors with fewer than 2 do
    not count. Of normalised embeddings D is 2 - 2 cosine, so that a temperature of t here is one of t / 2 for cosines.
    Adding a constant to a row of label distances, and turning or shifting embeddings that are not normalised, leave the
    loss as it is. Its least value is the entropy of p, not 0.

    Relations: ``kernel-supcon`` weighs items by exp(-D_y^2) instead. With p all on one item it is InfoNCE.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones of training pairs.
        label_temperature: In units of ``label_scale``, above 0. The published 0.1 is for cosines of labels, whose
            distances are of the order of 1, too.
        temperature: Above 0, of squared distances of embeddings; 0.2 is the published 0.1 of cosines.
        normalize: L2-normalise the embeddings first, as published.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [2.0]])
        >>> loss = SoftTargetLoss(label_scale=1.0, temperature=3.0, normalize=False)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 1.0]])):.4f}"  # both should have half, and have 0.731 and 0.269
        '0.8133'

    Reference:
        Sobal et al.: X-Sample Contrastive Loss, ICLR 2025, with negative label distances for similarities of labels.
    """

    about = About("O(A B)", "Sobal et al., ICLR 2025", "Near neighbours count most, weighted by how near they are.")

    def __init__(
        self,
        label_scale: Auto = "auto",
        label_temperature: float = 0.1,
        temperature: float = 0.2,
        normalize: bool = True,
    ) -> None:
        super().__init__(label_scale)
        self.label_temperature = check_above_zero("label_temperature", label_temperature)
        self.temperature = check_above_zero("temperature", temperature)
        self.normalize = normalize

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """The cross-entropy of each anchor that has 2 used columns or more."""
        spread = self.label_temperature * self.scale()
        return row_cross_entropy(squared, labels, used, lambda y, near: (near - y).div_(spread), self.temperature)


def soft_target_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Mask = None,
    label_temperature: float,
    temperature: float = 0.2,
    normalize: bool = True,
) -> Tensor:
    """``SoftTargetLoss``, with ``label_temperature`` in the label's unit, where a mask (A, B) is True."""
    return SoftTargetLoss(1.0, label_temperature, temperature, normalize).value(embeddings, label_distances, mask)


def row_cross_entropy(
    squared: Tensor, labels: Tensor, used: Tensor, log_weights: Callable[[Tensor, Tensor], Tensor], temperature: float
) -> RowTerms:
    """Cross-entropy of softmax(log_weights(D_y)) and softmax(-D / temperature) of each anchor with 2 used columns.

    ``log_weights`` is given label distances (R, B), infinite where not used, and the nearest (R, 1), whose weight is 1.
    """
    counts = used.sum(dim=1) >= 2  # (R,)
    labels = labels.masked_fill(~used, torch.inf)
    nearest = labels.amin(dim=1, keepdim=True).clamp_(max=torch.finfo(labels.dtype).max)
    wanted = log_weights(labels, nearest).softmax(dim=1)
    log_shares = squared.div_(-temperature).masked_fill_(~used, -torch.inf).log_softmax(dim=1)
    used &= counts[:, None]
    values = -(wanted * log_shares).where(used, 0).sum(dim=1)
    return RowTerms(values, counts, wanted.sub_(log_shares.exp_()).div_(temperature).where(used, 0))
