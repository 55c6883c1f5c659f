"""Soft-target cross-entropy: how an anchor's items share its attention should follow from their label distances."""

import torch
from torch import Tensor
from torch.linalg import vecdot

from cml.losses.label_distance_loss import Auto, ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.settings import check_above_zero, check_flag


class SoftTargetLoss(ScaledLabelLoss):
    r"""Cross-entropy of a softmax of label distances and one of embedding distances.

    The mean over anchors a of

        -sum_j p_j log q_j,   p = softmax_j(-D_y(a,j) / label_temperature),   q = softmax_j(-D(f_a,f_j) / temperature)

    with D the squared Euclidean distance of embeddings and j over the anchor's used items; anchors with fewer than 2 do
    not count. Of normalised embeddings D is 2 - 2 cosine, so that a temperature of t here is one of t / 2 for cosines.
    The loss is invariant to adding a constant to a row of label distances, and, for embeddings that are not normalised,
    to rotating and shifting them. Its least value is the entropy of p, not 0.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``kernel-supcon`` weighs items by exp(-D_y^2) instead. With all of p on one item it is InfoNCE.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive ones over a
            sample of training pairs.
        label_temperature: In units of ``label_scale``, above 0. The published 0.1 is for cosines of labels, whose
            distances are of the order of 1, too.
        temperature: Above 0, of squared distances of embeddings; 0.2 is the published 0.1 of cosines.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [2.0]])
        >>> loss = SoftTargetLoss(label_scale=1.0, temperature=3.0, normalize=False)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 1.0]])):.4f}"  # both should have half, and have 0.731 and 0.269
        '0.8133'

    Reference:
        Sobal, Ibrahim, Balestriero, Cabannes, Bouchacourt, Astolfi, Cho, LeCun: X-Sample Contrastive Loss, ICLR 2025,
        with negative label distances in place of similarities of labels.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Sobal et al., ICLR 2025",
        when="Near neighbours count most, weighted by how near they are.",
    )
    takes_heads = True

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
        self.normalize = check_flag("normalize", normalize)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula: the cross-entropy of p and q."""
        labels = labels.where(used, torch.inf)
        nearest = labels.amin(dim=-1, keepdim=True).clamp(max=torch.finfo(labels.dtype).max)
        # less the nearest's: weights of distant items may overflow to 0, those of the nearest do not
        wanted = ((nearest - labels) / (self.label_temperature * self.constant("label_scale"))).softmax(dim=-1)  # p
        return row_cross_entropy(wanted, squared / -self.temperature, used)


def row_cross_entropy(wanted: Tensor, scores: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy of each anchor's weights (R, B), 0 where not used, and the softmax of its scores (..., R, B).

    Returns the value (..., R) of each anchor, and whether it counts: it has two items that are used (R, B).
    """
    counts = used.sum(dim=-1) >= 2
    log_shares = scores.masked_fill(~used, torch.finfo(scores.dtype).min).log_softmax(dim=-1)  # log q, finite
    return -vecdot(wanted.where(counts[:, None], 0), log_shares), counts
