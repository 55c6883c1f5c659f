"""The proxy losses over classes that pytorch-metric-learning has, with their published settings.

Each computes exactly what the library computes; the docstring says where that differs from the paper. f and p are
L2-normalised embeddings and proxies, S their cosine, y the item's class.
"""

from typing import Any

import torch
from torch import Tensor

from cml.losses.class_loss import ProxyLoss, check_classes
from cml.losses.class_pairs import pml
from cml.losses.embeddings import rescaled
from cml.losses.loss import About
from cml.settings import check_above_zero, check_number, check_whole


class PmlProxyLoss(ProxyLoss):
    """The proxy loss of pytorch-metric-learning that has a name, with settings by the library's names."""

    def __init__(self, library: str, **settings: float) -> None:
        super().__init__()
        self.inner: Any = None  # before ``prepare``
        self._library, self._settings, self._count = library, settings, 0

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the library's loss, which makes its proxies."""
        kind = getattr(pml("losses"), self._library)
        self.inner, self._count = kind(classes, dimension, **self._settings), classes

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), classes (B,) int64, result a scalar."""
        self.check_prepared()
        check_classes(embeddings, classes, self._count)
        with torch.autocast(embeddings.device.type, enabled=False):
            value: Tensor = self.inner(rescaled(embeddings), classes)
        return value


class ProxyNCALoss(PmlProxyLoss):
    """A softmax over squared distances to one proxy per class.

    The mean over items of

        -log( exp(-s |f - p_y|^2) / sum over all classes k of exp(-s |f - p_k|^2) )

    The paper leaves the item's own class out of the sum, which lets the loss fall below 0; the library keeps it in.
    With s = 1 / T it is ``proxy-nca-pp``.

    Args:
        scale: s, above 0.

    Reference:
        Movshovitz-Attias, Toshev, Leung, Ioffe, Singh: No Fuss Distance Metric Learning using Proxies, ICCV 2017.
    """

    _when = "The first proxy loss; a baseline for the later ones."
    about = About("O(B C)", "Movshovitz-Attias et al., ICCV 2017", _when)

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__("ProxyNCALoss", softmax_scale=check_above_zero("scale", scale))
        self.scale = float(scale)


class SoftTripleLoss(PmlProxyLoss):
    """A softmax over classes of several centres each, for classes that fall into kinds.

    With S_k = sum over the centres m of class k of softmax_m(S_km / gamma) S_km, the mean over items of

        -log( exp(scale (S_y - margin)) / ( exp(scale (S_y - margin)) + sum_{k != y} exp(scale S_k) ) )

    The paper adds a term that merges centres of one class; the library leaves it out.

    Args:
        centers: Centres per class, at least 1.
        scale: Above 0.
        gamma: Above 0; how soft the choice among a class's centres is.
        margin: At least 0, a cosine.

    Reference:
        Qian, Shang, Sun, Hu, Li, Jin: SoftTriple Loss, ICCV 2019.
    """

    _when = "Classes that fall into several kinds, such as views of a product."
    about = About("O(B C M), M centres per class", "Qian et al., ICCV 2019", _when)

    def __init__(self, centers: int = 10, scale: float = 20.0, gamma: float = 0.1, margin: float = 0.01) -> None:
        check_whole("centers", centers)
        scale, gamma = check_above_zero("scale", scale), check_above_zero("gamma", gamma)
        margin = check_number("margin", margin, least=0)
        super().__init__("SoftTripleLoss", centers_per_class=centers, la=scale, gamma=gamma, margin=margin)
        self.centers, self.scale, self.gamma, self.margin = centers, scale, gamma, margin


class ProxyAnchorLoss(PmlProxyLoss):
    """Each proxy as an anchor: it pulls the items of its class and pushes all others, the hard ones most.

    With P all C proxies, P+ those whose class is in the batch, X_p+ and X_p- the batch's items of the proxy's class
    and of others:

        1/|P+| sum_{p in P+} log( 1 + sum_{x in X_p+} exp(-alpha (S - delta)) )
      + 1/|P|  sum_{p in P}  log( 1 + sum_{x in X_p-} exp( alpha (S + delta)) )

    Args:
        alpha: Above 0.
        delta: At least 0, a cosine.

    Example:
        >>> loss = ProxyAnchorLoss()
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Kim, Kim, Cho, Kwak: Proxy Anchor Loss for Deep Metric Learning, CVPR 2020.
    """

    _when = "Classes with several items each: converges fast, and random batches will do."
    about = About("O(B C)", "Kim et al., CVPR 2020", _when)

    def __init__(self, alpha: float = 32.0, delta: float = 0.1) -> None:
        alpha, delta = check_above_zero("alpha", alpha), check_number("delta", delta, least=0)
        super().__init__("ProxyAnchorLoss", alpha=alpha, margin=delta)
        self.alpha, self.delta = alpha, delta
