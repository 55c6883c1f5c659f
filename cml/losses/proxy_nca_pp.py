"""ProxyNCA++ over classes: a softmax over the distances to one proxy per class, at a low temperature."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.loss import LossInfo
from cml.losses.pairs import unit_rows
from cml.losses.proxy_loss import ProxyTableLoss, check_proxies
from cml.settings import check_above_zero


class ProxyNCAPlusPlusLoss(ProxyTableLoss):
    """Cross-entropy of a softmax over squared distances to all proxies, one learnt proxy per class.

    The mean over items i of

        -log( exp(-D(f_i, p_y) / T) / sum over all classes k of exp(-D(f_i, p_k) / T) )

    with D the squared Euclidean distance of L2-normalised embeddings and proxies, and y the item's class. 1 / T stands
    inside the exponent; some texts print it outside, where it would only scale the loss.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: ``proxy-nca`` with scale = 1 / T.

    Args:
        temperature: T, above 0; 1/9 as published.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> loss = ProxyNCAPlusPlusLoss(temperature=1.0)
        >>> loss.prepare(classes, dimension=2)
        >>> loss.proxy.data = points
        >>> round(loss(points, classes).item(), 4)  # log(1 + e^-2)
        0.1269

    Reference:
        Teh, DeVries, Taylor: ProxyNCA++: Revisiting and Revitalizing Proxy Neighborhood Component Analysis, ECCV 2020.
    """

    info = LossInfo(
        cost="O(B C)",
        source="Teh et al., ECCV 2020",
        when="A plain softmax over one proxy per class, at a low temperature.",
    )

    def __init__(self, temperature: float = 1 / 9) -> None:
        super().__init__()
        self.temperature = check_above_zero("temperature", temperature)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        proxies = self.proxy_table()
        check_proxies(embeddings, proxies, classes, look=self.may_check_numbers(embeddings))
        with torch.autocast(embeddings.device.type, enabled=False):
            points = unit_rows(embeddings)
            cosines = points @ unit_rows(proxies).to(points).T  # (B, C)
            # D = 2 - 2 cosine, and a constant leaves a softmax as it is
            return functional.cross_entropy(2 * cosines / self.temperature, classes)
