"""Kernel SupCon: the supervised contrastive loss with a Gaussian kernel of label distances for positives."""

from torch import Tensor

from cml.losses.label_distance_loss import Auto, Mask, ScaledLabelLoss
from cml.losses.loss import About
from cml.losses.row_blocks import RowTerms
from cml.losses.soft_target import row_cross_entropy
from cml.settings import check_above_zero


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
