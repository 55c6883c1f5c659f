"""ProxyNCA with direction regularisation: an item is not pushed away from other proxies through its own."""

import torch
from torch import Tensor

from cml.losses.direction_regularization import LEAST, SOURCE, as_exact
from cml.losses.loss import LossInfo
from cml.losses.pairs import unit_rows
from cml.losses.proxy_loss import ProxyTableLoss, check_proxies
from cml.settings import check_number


class DirectionProxyNCALoss(ProxyTableLoss):
    """ProxyNCA with direction regularisation and one learnt proxy per class.

    The mean over items i of

        D(f_i, p_y) + log sum over the other classes k of exp( -D(f_i, p_k) - gamma cos(p_k - f_i, p_y - f_i) )

    with D the squared Euclidean distance of L2-normalised embeddings and proxies, and y the item's class. The item's
    own class is not in the sum, so the loss may fall below 0.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: for gamma = 0 it is ProxyNCA as published, while ``proxy-nca`` keeps the own class in the sum.

    Args:
        gamma: Weight of the regularisation, at least 0.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, loss = torch.eye(2), DirectionProxyNCALoss(gamma=0.0)
        >>> loss.prepare(torch.tensor([0, 1]), dimension=2)
        >>> loss.proxy.data = points
        >>> loss(points, torch.tensor([1, 0])).item()  # each on the wrong proxy
        2.0

    Reference:
        Mohan, Sankaran, Fedorishin, Setlur, Govindaraju: Moving in the Right Direction, CVPR 2020.
    """

    info = LossInfo(cost="O(B C)", source=SOURCE, when="ProxyNCA on classes that lie close together.")

    def __init__(self, gamma: float = 0.3) -> None:
        super().__init__()
        self.gamma = check_number("gamma", gamma, least=0)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        proxies = self.proxy_table()
        check_proxies(embeddings, proxies, classes, look=self.may_check_numbers(embeddings))
        with torch.autocast(embeddings.device.type, enabled=False):
            unit_points = unit_rows(embeddings)
            points, centers = as_exact(unit_points), as_exact(unit_rows(proxies))
            between = points @ centers.T  # (B, C)
            squared = 2 - 2 * between
            own = between.gather(1, classes[:, None])  # (B, 1)
            to_own = 2 - 2 * own
            inner = (centers @ centers.T)[classes] - between - own + 1  # (p_k - f_i) . (p_y - f_i)
            cosines = inner / (squared * to_own).clamp(min=LEAST).sqrt()
            exponents = (-squared - self.gamma * cosines).scatter(1, classes[:, None], -torch.inf)
            value = (to_own.squeeze(1) + exponents.logsumexp(dim=1)).mean()
            return value.to(unit_points.dtype)
