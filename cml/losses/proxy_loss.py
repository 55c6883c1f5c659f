"""The bases of the losses with proxies: learnt points that stand for classes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.class_loss import ClassLoss, check_classes
from cml.processes.own_generator import draw_from


class ProxyLoss(ClassLoss):
    """Base of the losses with proxies, learnt points that stand for classes.

    The proxies are all of the loss's parameters. ``prepare`` makes them, so a loss that is loaded from a
    ``state_dict`` needs ``prepare`` as well, with as many classes. They learn at ``proxy_rate`` times the learning rate
    and are saved with the run.
    """

    normalize = True

    def prepare(
        self,
        target: Tensor,  # (N,) int64 class numbers 0..C-1 of the training items
        *,
        dimension: int,  # D of the embeddings
        names: Sequence[str] = (),
        generator: torch.Generator | None = None,  # decides where the proxies start. ``None``: seed 0
    ) -> None:
        """Make the proxies, before the optimiser that shall hold them: ``loss.prepare(classes, dimension=128)``."""
        if not isinstance(target, Tensor) or target.dtype != torch.int64 or target.ndim != 1 or len(target) == 0:
            got = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
            raise UserError(
                f"prepare takes the class numbers (N,) of the training items, torch.int64. Got {got} instead."
            )
        count = len(names) if names else int(target.max()) + 1
        seed = 0 if generator is None else int(torch.randint(2**62, (), generator=generator))
        with draw_from(torch.Generator().manual_seed(seed)):
            self.make_proxies(count, dimension)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the parameters, from torch's random numbers.

        Args:
            classes: C, the number of classes.
            dimension: D of the embeddings.
        """
        raise NotImplementedError

    def proxies(self) -> list[nn.Parameter]:
        """The proxies, once they are made."""
        return list(self.parameters())

    def check_prepared(self) -> None:
        """Check that the proxies are made.

        Raises:
            UserError: they are not.
        """
        if not self.proxies():
            raise UserError(
                f"{type(self).__name__} has no proxies yet: call prepare(classes, dimension=D) with the class numbers "
                "of the training items, before the optimiser is made."
            )


class ProxyTableLoss(ProxyLoss):
    """Base of the proxy losses that keep one table of M proxies per class."""

    per_class = 1
    proxy: nn.Parameter  # (C M, D), the M proxies of each class in consecutive rows; None before ``prepare``

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("proxy", None)

    def make_proxies(
        self,
        classes: int,  # C, the number of classes
        dimension: int,  # D of the embeddings
    ) -> None:
        """Make the table, Kaiming-normal by fan-out, as Proxy-Anchor does."""
        proxy = torch.empty(classes * self.per_class, dimension)
        self.proxy = nn.Parameter(nn.init.kaiming_normal_(proxy, mode="fan_out"))

    def proxy_table(self) -> Tensor:
        """The proxies (C M, D); a ``UserError`` before ``prepare``."""
        self.check_prepared()
        return self.proxy


def check_proxies(embeddings: Tensor, proxies: Tensor, classes: Tensor, per_class: int = 1, *, look: bool) -> None:
    """Check a batch of a loss over proxies (C M, D), the M of each class in consecutive rows, and at least 2 rows."""
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
    check_classes(embeddings, classes, len(proxies) // per_class, look=look)
