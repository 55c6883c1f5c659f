"""Cross-entropy of how an anchor's items share its attention, and should by their label distances."""

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


class KernelSupConLoss(ScaledLabelLoss):
    r"""The y-aware supervised contrastive loss over all anchors of a batch.

    The mean over anchors a of

        -sum_j w_j / (sum_k w_k) log( exp(cos_aj / temperature) / sum_k exp(cos_ak / temperature) )

    with w_j = exp(-D_y(a,j)^2 / (2 bandwidth^2)), cos the cosine of embeddings, j and k over the anchor's used items;
    anchors with fewer than 2 do not count. The normalised weights are computed as a softmax: an anchor whose items are
    all many bandwidths away takes its nearest item for its positive, where the quotient of the formula would be 0 / 0.
    Scaling or turning the embeddings leaves the loss as it is.

    The authors' code differs from their formula and from this: it divides w_j by the sum of item j's weights instead of
    the anchor's, so that an anchor's weights do not add up to 1; its batch holds two views of each of N images, items
    of label distance 0; and it divides the sum over the 2 N anchors by N.
    Relations: with label distances 0 (same class) and infinitely many bandwidths it is the supervised contrastive
    loss (its L_out). ``soft-target`` weighs items by exp(-D_y) instead.

    Args:
        label_scale: The label distance that counts as 1, or "auto": the median of positive ones of training pairs.
        bandwidth: Of the Gaussian kernel, in units of ``label_scale``, above 0. The publication takes 5 years for ages
            that spread over decades: about half the usual difference of two.
        temperature: Above 0, of cosines; 0.1 as published.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> loss = KernelSupConLoss(label_scale=1.0, temperature=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 1.0]])):.4f}"  # both should have half, and have 0.731 and 0.269
        '0.8133'

    Reference:
        Dufumier et al.: Contrastive Learning with Continuous Proxy Meta-Data for 3D MRI Classification, MICCAI 2021;
        for classes Khosla et al.: Supervised Contrastive Learning, NeurIPS 2020.
    """

    _when = "As soft-target, but all items within a bandwidth count about equally."
    about = About("O(A B)", "Dufumier et al., MICCAI 2021", _when)
    normalize = True

    def __init__(self, label_scale: Auto = "auto", bandwidth: float = 0.5, temperature: float = 0.1) -> None:
        super().__init__(label_scale)
        self.bandwidth = check_above_zero("bandwidth", bandwidth)
        self.temperature = check_above_zero("temperature", temperature)

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """The cross-entropy of each anchor that has 2 used columns or more."""
        bandwidth = self.bandwidth * self.scale()

        def log_weights(labels: Tensor, nearest: Tensor) -> Tensor:  # the difference of squares, which may overflow
            return (nearest - labels).div_(bandwidth).mul_((labels / 2).add_(nearest / 2).div_(bandwidth))

        # of normalised embeddings cos = 1 - D / 2, and the 1 cancels
        return row_cross_entropy(squared, labels, used, log_weights, 2 * self.temperature)


def kernel_supcon_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, bandwidth: float, temperature: float = 0.1
) -> Tensor:
    """``KernelSupConLoss``, with ``bandwidth`` in the label's unit, where a mask (A, B) is True."""
    return KernelSupConLoss(1.0, bandwidth, temperature).value(embeddings, label_distances, mask)
