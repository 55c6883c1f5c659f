"""Proxy-Anchor: each proxy is an anchor, which pulls the items of its class and pushes all others."""

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlProxyLoss
from cml.settings import check_above_zero, check_number


class ProxyAnchorLoss(PmlProxyLoss):
    """Take each learnt proxy as an anchor, which pulls the items of its class and pushes all others.

    With P all C proxies, P+ those whose class is in the batch, X_p+ and X_p- the batch's items of the proxy's class
    and of others:

        1/|P+| sum_{p in P+} log( 1 + sum_{x in X_p+} exp(-alpha (S - delta)) )
      + 1/|P|  sum_{p in P}  log( 1 + sum_{x in X_p-} exp( alpha (S + delta)) )

    where S is the cosine of item and proxy. Hard items weigh most.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: ``proxy-nca`` has the items as anchors.

    Args:
        alpha: Above 0. Sharpness of the weights.
        delta: At least 0. The margin, a cosine.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = ProxyAnchorLoss()
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Kim, Kim, Cho, Kwak: Proxy Anchor Loss for Deep Metric Learning, CVPR 2020.
    """

    info = LossInfo(
        cost="O(B C)",
        source="Kim et al., CVPR 2020",
        when="Classes with several items each: converges fast, and random batches will do.",
    )

    def __init__(self, alpha: float = 32.0, delta: float = 0.1) -> None:
        alpha, delta = check_above_zero("alpha", alpha), check_number("delta", delta, least=0)
        super().__init__("ProxyAnchorLoss", alpha=alpha, margin=delta)
        self.alpha, self.delta = alpha, delta
