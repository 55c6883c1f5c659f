"""ProxyGML over classes: several proxies per class, of which an item keeps its own and the nearest others."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.losses.embedding_checks import unit_rows
from cml.losses.loss import LossInfo
from cml.losses.proxy_loss import ProxyTableLoss, check_proxies
from cml.settings import check_number, check_whole


def proxy_gml_loss(
    embeddings: Tensor, proxies: Tensor, classes: Tensor, *, per_class: int, kept: int, regularization: float = 0.3
) -> Tensor:
    """ProxyGML as a function; ``ProxyGMLLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point.
        proxies: (C M, D) floating point, the M proxies of each class in consecutive rows.
        classes: (B,) int64 in 0..C-1.
        per_class: M, proxies per class, at least 1.
        kept: Proxies that an item keeps: its M own and the nearest others. Above M, at most C M.
        regularization: Weight of the proxies' own term, at least 0.

    Returns:
        A scalar.

    Raises:
        UserError: a tensor has another shape or type, a number is not a class, or a setting is out of range.
    """
    check_proxies(embeddings, proxies, classes, per_class)
    count = len(proxies) // per_class
    check_number("regularization", regularization, least=0)
    if not per_class < kept <= len(proxies):
        raise UserError(
            f"The 'kept' proxies must be more than the {per_class} of the item's class and at most all "
            f"{len(proxies)}. Got {kept} instead."
        )
    with torch.autocast(embeddings.device.type, enabled=False):
        items = unit_rows(embeddings)
        points = unit_rows(proxies).to(items)  # (C M, D)
        cosines = items @ points.T  # (B, C M)
        own = torch.arange(len(proxies), device=classes.device) // per_class  # (C M,)
        ranked = cosines.detach().masked_fill(own == classes[:, None], torch.inf)
        keep = torch.zeros_like(ranked, dtype=torch.bool).scatter_(1, ranked.topk(kept, dim=1).indices, True)
        sums = cosines.masked_fill(~keep, 0).reshape(-1, count, per_class).sum(dim=2)  # (B, C)
        present = keep.reshape(-1, count, per_class).any(dim=2)
        loss = functional.cross_entropy(sums.masked_fill(~present, -torch.inf), classes)
        if regularization:
            among = (points @ points.T).reshape(-1, count, per_class).sum(dim=2)  # (C M, C)
            loss = loss + regularization * functional.cross_entropy(among, own)
        return loss


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
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> value = proxy_gml_loss(points, points, torch.tensor([0, 1]), per_class=1, kept=2, regularization=0.0)
        >>> round(value.item(), 4)  # log(1 + 1/e)
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
        if isinstance(share, bool) or not 0 < share <= 1:
            raise UserError(f"The 'share' must be above 0 and at most 1. Got {share!r} instead.")
        self.per_class = check_whole("per_class", per_class)
        self.share = float(share)
        self.regularization = check_number("regularization", regularization, least=0)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the table, Kaiming-uniform over the number of the proxies, as in the authors' code.

        Args:
            classes: C, the number of classes.
            dimension: D of the embeddings.

        Raises:
            UserError: the share keeps no proxy of another class.
        """
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
        """The loss of a batch.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            classes: (B,) int64 in 0..C-1.

        Returns:
            A scalar.

        Raises:
            UserError: the proxies are not made yet, a tensor has another shape or type, or a number is not a class.
        """
        proxies = self.proxy_table()
        return proxy_gml_loss(
            embeddings,
            proxies,
            classes,
            per_class=self.per_class,
            kept=self._count_to_keep(len(proxies)),
            regularization=self.regularization,
        )
