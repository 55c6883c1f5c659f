"""ProxyNCA++: a softmax over the distances to one proxy per class."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.embeddings import unit
from cml.losses.loss import About
from cml.losses.own_proxies import OwnProxyLoss, check_proxies
from cml.settings import check_above_zero


def proxy_nca_pp_loss(embeddings: Tensor, proxies: Tensor, classes: Tensor, *, temperature: float = 1 / 9) -> Tensor:
    """``ProxyNCAPlusPlusLoss`` as a function of embeddings (B, D), proxies (C, D), C >= 2, and classes (B,) int64."""
    check_above_zero("temperature", temperature)
    check_proxies(embeddings, proxies, classes)
    with torch.autocast(embeddings.device.type, enabled=False):
        points = unit(embeddings)
        cosines = points @ unit(proxies).to(points).T  # (B, C)
        # D = 2 - 2 cosine, and a constant leaves a softmax as it is
        return functional.cross_entropy(2 * cosines / temperature, classes)


class ProxyNCAPlusPlusLoss(OwnProxyLoss):
    """Cross-entropy of a softmax over squared distances to all proxies, one learnt proxy per class.

    The mean over items i of

        -log( exp(-D(f_i, p_y) / T) / sum over all classes k of exp(-D(f_i, p_k) / T) )

    with D the squared Euclidean distance of L2-normalised embeddings and proxies. 1 / T stands inside the exponent;
    some texts print it outside, where it would only scale the loss.

    Relations: ``proxy-nca`` with scale = 1 / T.

    Args:
        temperature: T, above 0; 1/9 as published.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> round(proxy_nca_pp_loss(points, points, torch.tensor([0, 1]), temperature=1.0).item(), 4)  # log(1 + e^-2)
        0.1269

    Reference:
        Teh, DeVries, Taylor: ProxyNCA++: Revisiting and Revitalizing Proxy Neighborhood Component Analysis, ECCV 2020.
    """

    about = About("O(B C)", "Teh et al., ECCV 2020", "A plain softmax over one proxy per class, at a low temperature.")

    def __init__(self, temperature: float = 1 / 9) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        return proxy_nca_pp_loss(embeddings, self.made(), classes, temperature=self.temperature)
