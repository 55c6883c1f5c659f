"""Proxy-NCA: a softmax over squared distances to one proxy per class."""

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlProxyLoss, lp_distance
from cml.settings import check_above_zero


class ProxyNCALoss(PmlProxyLoss):
    """A softmax over squared distances to one learnt proxy per class.

    The mean over items of

        -log( exp(-s |f - p_y|^2) / sum over all classes k of exp(-s |f - p_k|^2) )

    with f and p the L2-normalised embeddings and proxies and y the item's class. The paper leaves the item's own class
    out of the sum, which lets the loss fall below 0; the library keeps it.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: with s = 1 / T it is ``proxy-nca-pp``. ``direction-proxy-nca`` adds direction regularisation.

    Args:
        scale: s, above 0.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = ProxyNCALoss()
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: No Fuss Distance Metric Learning using Proxies, ICCV 2017.
    """

    info = LossInfo(
        cost="O(B C)",
        source="Movshovitz-Attias et al., ICCV 2017",
        when="The first proxy loss; a baseline for the later ones.",
    )

    def __init__(self, scale: float = 1.0) -> None:
        distance = lp_distance(normalize=True, power=2, exact=False)
        super().__init__("ProxyNCALoss", softmax_scale=check_above_zero("scale", scale), distance=distance)
        self.scale = float(scale)
