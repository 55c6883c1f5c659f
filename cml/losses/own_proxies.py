"""Base of the proxy losses that pytorch-metric-learning does not have."""

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ProxyLoss, check_classes


class OwnProxyLoss(ProxyLoss):
    """Base of the proxy losses of our own, with M proxies of each class in a row."""

    per_class = 1  # M
    proxy: nn.Parameter  # (C M, D); None before ``prepare``

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("proxy", None)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Kaiming-normal by fan-out, as Proxy-Anchor does."""
        proxy = torch.empty(classes * self.per_class, dimension)
        self.proxy = nn.Parameter(nn.init.kaiming_normal_(proxy, mode="fan_out"))

    def made(self) -> Tensor:
        """The proxies (C M, D), once they are made."""
        self.check_prepared()
        return self.proxy


def check_proxies(embeddings: Tensor, proxies: Tensor, classes: Tensor, per_class: int = 1) -> None:
    """``check_classes``, and ``proxies`` should be (C M, D) floating point, at least 2, M = ``per_class`` in a row."""
    check_classes(embeddings, classes)
    if proxies.ndim != 2 or not proxies.is_floating_point() or len(proxies) < 2:
        got = f"Got shape {tuple(proxies.shape)}, {proxies.dtype} instead."
        raise UserError(f"The 'proxies' must be a floating-point tensor of at least 2 rows (P, D). {got}")
    if proxies.shape[1] != embeddings.shape[1]:
        got = f"Got {embeddings.shape[1]} and {proxies.shape[1]} instead."
        raise UserError(f"Embeddings and proxies must have one dimension D. {got}")
    if per_class < 1 or len(proxies) % per_class:
        got = f"Got {len(proxies)} with per_class={per_class} instead."
        raise UserError(f"The proxies must be 'per_class' of every class. {got}")
    check_classes(embeddings, classes, len(proxies) // per_class)
