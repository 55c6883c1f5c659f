"""ProxyNCA with direction regularisation."""

import torch
from torch import Tensor

from cml.losses.direction import LEAST, SOURCE, exact
from cml.losses.embeddings import unit
from cml.losses.loss import About
from cml.losses.own_proxies import OwnProxyLoss, check_proxies
from cml.settings import check_number


def direction_proxy_nca_loss(embeddings: Tensor, proxies: Tensor, classes: Tensor, *, gamma: float = 0.3) -> Tensor:
    """``DirectionProxyNCALoss`` as a function of embeddings (B, D), proxies (C, D), C >= 2, and classes (B,) int64."""
    check_number("gamma", gamma, least=0)
    check_proxies(embeddings, proxies, classes)
    with torch.autocast(embeddings.device.type, enabled=False):
        unit_points = unit(embeddings)
        points, centers = exact(unit_points), exact(unit(proxies))
        between = points @ centers.T  # (B, C)
        squared = 2 - 2 * between
        own = between.gather(1, classes[:, None])  # (B, 1)
        to_own = 2 - 2 * own
        inner = (centers @ centers.T)[classes] - between - own + 1  # (p_k - f_i) . (p_y - f_i)
        cosines = inner / (squared * to_own).clamp(min=LEAST).sqrt()
        exponents = (-squared - gamma * cosines).scatter(1, classes[:, None], -torch.inf)
        value = (to_own.squeeze(1) + exponents.logsumexp(dim=1)).mean()
        return value.to(unit_points.dtype)


class DirectionProxyNCALoss(OwnProxyLoss):
    """ProxyNCA with direction regularisation and one learnt proxy per class, embeddings and proxies L2-normalised.

    The mean over items i, with y the item's class and D the squared Euclidean distance, of

        D(f_i, p_y) + log sum over the other classes k of exp( -D(f_i, p_k) - gamma cos(p_k - f_i, p_y - f_i) )

    The item's own class is not in the sum, so the loss may fall below 0.

    Args:
        gamma: At least 0.

    Example:
        >>> points = torch.eye(2)
        >>> direction_proxy_nca_loss(points, points, torch.tensor([1, 0]), gamma=0.0).item()  # each on the wrong proxy
        2.0

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    about = About("O(B C)", SOURCE, "ProxyNCA on classes that lie close together.")

    def __init__(self, gamma: float = 0.3) -> None:
        super().__init__()
        self.gamma = check_number("gamma", gamma, least=0)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        return direction_proxy_nca_loss(embeddings, self.made(), classes, gamma=self.gamma)
