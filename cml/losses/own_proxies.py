"""The proxy losses that pytorch-metric-learning does not have: ProxyNCA++, ProxyNCA with direction, ProxyGML."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.losses.class_loss import ProxyLoss, check_classes
from cml.losses.direction import LEAST, SOURCE, exact
from cml.losses.embeddings import unit
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number, check_whole


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


def proxy_gml_loss(
    embeddings: Tensor, proxies: Tensor, classes: Tensor, *, per_class: int, kept: int, regularization: float = 0.3
) -> Tensor:
    """``ProxyGMLLoss`` as a function of embeddings (B, D), proxies (C M, D) and classes (B,) int64.

    Of ``per_class`` = M proxies of a class in a row an item keeps its own and the nearest others, ``kept`` in all:
    above M, at most C M.
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
        items = unit(embeddings)
        points = unit(proxies).to(items)  # (C M, D)
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


class ProxyGMLLoss(OwnProxyLoss):
    """Cross-entropy over the classes of the proxies that an item keeps, and of the proxies among themselves.

    With S_ij the cosine of item i and proxy j: item i keeps the M proxies of its own class and the ``kept`` - M
    nearest of all others. Z_ik is the sum of S_ij over the kept proxies j of class k, and

        L = -1/B sum_i log( exp(Z_iy) / sum over the classes k with a kept proxy of exp(Z_ik) )
            + regularization * the same of the C M proxies as items that keep all proxies, themselves too

    Relations: with M = 1 and all proxies kept, the first part is a softmax over cosines.

    Args:
        per_class: M, proxies per class, at least 1; 12 as published for CUB and Cars, 1 for SOP.
        share: r, above 0 and at most 1; an item keeps K = ceil(r C M) of all C M proxies. 0.05 as published. It must be
            above 1 / C, or no proxy of another class would be kept.
        regularization: At least 0; weight of the proxies' own term, the second part. 0.3 as published.

    Raises:
        UserError: in ``prepare``, the share keeps no proxy of another class.

    Example:
        >>> points = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> value = proxy_gml_loss(points, points, torch.tensor([0, 1]), per_class=1, kept=2, regularization=0.0)
        >>> round(value.item(), 4)  # log(1 + 1/e)
        0.3133

    Reference:
        Zhu, Yang, Deng, Liu: Fewer is More: A Deep Graph Metric Learning Perspective Using Fewer Proxies, NeurIPS 2020,
        with the minus that equation 7's cross-entropy lacks in print.
    """

    _when = "Classes that fall into kinds, where each item should learn from a few near proxies alone."
    about = About("O(B C M log(C M)), M proxies per class", "Zhu et al., NeurIPS 2020", _when)

    def __init__(self, per_class: int = 12, share: float = 0.05, regularization: float = 0.3) -> None:
        super().__init__()
        if not 0 < share <= 1:
            raise UserError(f"The 'share' must be above 0 and at most 1. Got {share!r} instead.")
        self.per_class = check_whole("per_class", per_class)
        self.share = float(share)
        self.regularization = check_number("regularization", regularization, least=0)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Kaiming-uniform over the number of the proxies, as in the authors' code."""
        count = classes * self.per_class
        self._kept(count)
        bound = 1 / math.sqrt(count)
        self.proxy = nn.Parameter(torch.empty(count, dimension).uniform_(-bound, bound))

    def _kept(self, proxies: int) -> int:
        kept = math.ceil(self.share * proxies)
        if kept <= self.per_class:
            raise UserError(
                f"With share={self.share} an item keeps {kept} of {proxies} proxies, {self.per_class} of them its own "
                f"class's: none would be left to learn from. Set share above {self.per_class / proxies:.3g}."
            )
        return kept

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        proxies, per_class = self.made(), self.per_class
        kept, weight = self._kept(len(proxies)), self.regularization
        return proxy_gml_loss(embeddings, proxies, classes, per_class=per_class, kept=kept, regularization=weight)


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
