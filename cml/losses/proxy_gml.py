"""ProxyGML over classes: several proxies per class, of which an item keeps its own and the nearest others."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.losses.loss import LossInfo
from cml.losses.pairs import unit_rows
from cml.losses.proxy_loss import ProxyTableLoss, check_proxies
from cml.option_types import describe_value, is_number
from cml.settings import check_number, check_whole


class ProxyGMLLoss(ProxyTableLoss):
    """Cross-entropy over the classes of the proxies that an item keeps, and of the proxies among themselves.

    With S_ij the cosine of item i and proxy j: item i keeps the M proxies of its own class and the K - M nearest of all
    others. Z_ik is the sum of S_ij over the kept proxies j of class k, and

        L = -1/B sum_i log( exp(Z_iy) / sum over the classes k with a kept proxy of exp(Z_ik) )
            + regularization * the same of the C M proxies as items that keep all proxies, themselves too

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the proxies.

    Relations: with M = 1 and all proxies kept, the first part is a softmax over cosines. ``soft-triple`` has several
    centres per class too, and takes all of them.

    Args:
        per_class: M, proxies per class, at least 1; 12 as published for CUB and Cars, 1 for SOP.
        share: r, above 0 and at most 1; an item keeps K = ceil(r C M) of all C M proxies. 0.05 as published. It must be
            above 1 / C, or no proxy of another class would be kept.
        regularization: Weight of the proxies' own term, the second part, at least 0. 0.3 as published.

    Raises:
        UserError: a setting is out of range; in ``prepare``, the share keeps no proxy of another class.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])
        >>> loss = ProxyGMLLoss(per_class=1, share=1.0, regularization=0.0)
        >>> loss.prepare(classes, dimension=2)
        >>> loss.proxy.data = points
        >>> round(loss(points, classes).item(), 4)  # log(1 + 1/e)
        0.3133

    Reference:
        Zhu, Yang, Deng, Liu: Fewer is More: A Deep Graph Metric Learning Perspective Using Fewer Proxies, NeurIPS 2020,
        with the minus sign that equation 7's cross-entropy lacks in print.
    """

    info = LossInfo(
        cost="O(B C M log(C M)), M proxies per class",
        source="Zhu et al., NeurIPS 2020",
        when="Classes that fall into kinds, where each item should learn from a few near proxies alone.",
    )

    def __init__(self, per_class: int = 12, share: float = 0.05, regularization: float = 0.3) -> None:
        super().__init__()
        if not is_number(share) or not 0 < share <= 1:
            raise UserError(f"The 'share' must be above 0 and at most 1. Got {describe_value(share)} instead.")
        self.per_class = check_whole("per_class", per_class)
        self.share = float(share)
        self.regularization = check_number("regularization", regularization, least=0)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the table, Kaiming-uniform over the number of the proxies, as in the authors' code."""
        count = classes * self.per_class
        self._count_to_keep(count)
        bound = 1 / math.sqrt(count)
        self.proxy = nn.Parameter(torch.empty(count, dimension).uniform_(-bound, bound))

    def _count_to_keep(self, proxies: int) -> int:
        kept = math.ceil(self.share * proxies)
        if kept <= self.per_class:
            raise UserError(
                f"With share={self.share} an item keeps {kept} of {proxies} proxies, {self.per_class} of them its own "
                f"class's: none would be left to learn from. Set share above {self.per_class / proxies:.3g}."
            )
        return kept

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        proxies = self.proxy_table()
        check_proxies(embeddings, proxies, classes, self.per_class, look=self.may_check_numbers(embeddings))
        kept, count = self._count_to_keep(len(proxies)), len(proxies) // self.per_class
        with torch.autocast(embeddings.device.type, enabled=False):
            items = unit_rows(embeddings)
            points = unit_rows(proxies).to(items)  # (C M, D)
            cosines = items @ points.T  # S, (B, C M)
            own = torch.arange(len(proxies), device=classes.device) // self.per_class  # (C M,)
            ranked = cosines.detach().masked_fill(own == classes[:, None], torch.inf)
            keep = torch.zeros_like(ranked, dtype=torch.bool).scatter_(1, ranked.topk(kept, dim=1).indices, True)
            sums = cosines.masked_fill(~keep, 0).reshape(-1, count, self.per_class).sum(dim=2)  # Z, (B, C)
            present = keep.reshape(-1, count, self.per_class).any(dim=2)
            loss = functional.cross_entropy(sums.masked_fill(~present, -torch.inf), classes)
            if self.regularization:
                among = (points @ points.T).reshape(-1, count, self.per_class).sum(dim=2)  # (C M, C)
                loss = loss + self.regularization * functional.cross_entropy(among, own)
            return loss
