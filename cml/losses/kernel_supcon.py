"""Kernel SupCon: the supervised contrastive loss, with positives weighted by a Gaussian kernel of label distances."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import Auto, ScaledLabelLoss
from cml.losses.loss import LossInfo
from cml.losses.soft_target import row_cross_entropy
from cml.settings import check_above_zero


class KernelSupConLoss(ScaledLabelLoss):
    r"""The y-aware supervised contrastive loss over all anchors of a batch.

    The mean over anchors a of

        -sum_j w_j / (sum_k w_k) log( exp(cos_aj / temperature) / sum_k exp(cos_ak / temperature) )

    with w_j = exp(-D_y(a,j)^2 / (2 bandwidth^2)), cos the cosine of embeddings, j and k over the anchor's used items;
    anchors with fewer than 2 do not count. The normalised weights are computed as a softmax: an anchor whose items are
    all many bandwidths away takes its nearest item as its positive, where the quotient of the formula would be 0 / 0.
    The loss is invariant to scaling and rotating the embeddings.

    The authors' code differs from their formula and from this: it divides w_j by the sum of item j's weights instead of
    the anchor's, so that an anchor's weights do not add up to 1; its batch holds two views of each of N images, items
    of label distance 0; and it divides the sum over the 2 N anchors by N.

    Inputs: embeddings (B, D), label distances (A, B). The embeddings are L2-normalised.

    Relations: with label distances 0 (same class) and infinitely many bandwidths it is the supervised contrastive
    loss (its L_out). ``soft-target`` weighs items by exp(-D_y) instead.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive ones over a
            sample of training pairs.
        bandwidth: Bandwidth of the Gaussian kernel, in units of ``label_scale``, above 0. The publication takes 5 years
            for ages that spread over decades: about half the usual difference of two.
        temperature: Above 0, of cosines; 0.1 as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> loss = KernelSupConLoss(label_scale=1.0, temperature=1.0)
        >>> f"{loss(points, torch.tensor([[0.0, 1.0, 1.0]])):.4f}"  # both should have half, and have 0.731 and 0.269
        '0.8133'

    Reference:
        Dufumier, Gori, Victor, Grigis, Wessa, Brambilla, Favre, Polosan, McDonald, Piguet, Duchesnay: Contrastive
        Learning with Continuous Proxy Meta-Data for 3D MRI Classification, MICCAI 2021; for classes Khosla and others:
        Supervised Contrastive Learning, NeurIPS 2020.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Dufumier et al., MICCAI 2021",
        when="As soft-target, but all items within a bandwidth count about equally.",
    )
    normalize = True
    takes_heads = True

    def __init__(self, label_scale: Auto = "auto", bandwidth: float = 0.5, temperature: float = 0.1) -> None:
        super().__init__(label_scale)
        self.bandwidth = check_above_zero("bandwidth", bandwidth)
        self.temperature = check_above_zero("temperature", temperature)

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula: the cross-entropy of the normalised weights and the softmax of cosines."""
        bandwidth = self.bandwidth * self.constant("label_scale")
        labels = labels.where(used, torch.inf)
        nearest = labels.amin(dim=-1, keepdim=True).clamp(max=torch.finfo(labels.dtype).max)
        # log w less its largest, (nearest^2 - labels^2) / (2 bandwidth^2), as a product: squares may overflow
        log_weights = (nearest - labels) / bandwidth * ((nearest / 2 + labels / 2) / bandwidth)
        scores = squared / (-2 * self.temperature)  # cos = 1 - D / 2 of normalised embeddings, and the 1 cancels
        return row_cross_entropy(log_weights.softmax(dim=-1), scores, used)
