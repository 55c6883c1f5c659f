"""SoftTriple: a softmax over classes of several centres each."""

import torch
from torch import Tensor

from cml.losses.loss import LossInfo
from cml.losses.pairs import unit_rows
from cml.losses.pml import PmlProxyLoss
from cml.settings import check_above_zero, check_number, check_whole


class SoftTripleLoss(PmlProxyLoss):
    """A softmax over classes of several learnt centres each, for classes that fall into kinds.

    With S_k = sum over the centres m of class k of softmax_m(S_km / gamma) S_km, the mean over items of

        -log( exp(scale (S_y - margin)) / ( exp(scale (S_y - margin)) + sum_{k != y} exp(scale S_k) ) )

    where S_km is the cosine of the item and a centre, and y the item's class. With ``tau``, a term is added that merges
    centres of a class: tau / (C M (M - 1)) times the sum, over the pairs of centres of each class, of their distance.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the centres.

    Relations: ``proxy-gml`` has several proxies per class too, and looks only at those that are near an item.

    Args:
        centers: M, centres per class, at least 1.
        scale: Above 0.
        gamma: Above 0. How soft the choice among a class's centres is.
        margin: At least 0, a cosine.
        tau: At least 0. Weight of the term that merges centres; 0.2 in the authors' code.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = SoftTripleLoss(centers=2)
        >>> loss.prepare(torch.tensor([0, 1, 2, 0]), dimension=4)
        >>> loss(torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])

    Reference:
        Qian, Shang, Sun, Hu, Li, Jin: SoftTriple Loss, ICCV 2019.
    """

    info = LossInfo(
        cost="O(B C M), M centres per class",
        source="Qian et al., ICCV 2019",
        when="Classes that fall into several kinds, such as views of a product.",
    )

    def __init__(
        self, centers: int = 10, scale: float = 20.0, gamma: float = 0.1, margin: float = 0.01, tau: float = 0.0
    ) -> None:
        check_whole("centers", centers)
        scale, gamma = check_above_zero("scale", scale), check_above_zero("gamma", gamma)
        margin = check_number("margin", margin, least=0)
        super().__init__("SoftTripleLoss", centers_per_class=centers, la=scale, gamma=gamma, margin=margin)
        self.centers, self.scale, self.gamma, self.margin = centers, scale, gamma, margin
        self.tau = check_number("tau", tau, least=0)

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch."""
        value = super().forward(embeddings, classes)
        return value + self.tau * self._spread() if self.tau and self.centers > 1 else value

    def _spread(self) -> Tensor:
        """Half the mean distance of two centres of a class."""
        # the library's SparseCentersRegularizer compares all centres of all classes
        with torch.autocast(self.inner.fc.device.type, enabled=False):
            rows = unit_rows(self.inner.fc.T)  # (C M, D)
            centers = rows.reshape(-1, self.centers, rows.shape[1])  # (C, M, D)
            cosines = centers @ centers.mT  # (C, M, M)
            pairs = torch.ones(cosines.shape[1:], dtype=torch.bool, device=cosines.device).triu(diagonal=1)
            # as in the authors' code, the constant keeps the gradient finite where two centres coincide
            spread: Tensor = (2 + 1e-5 - 2 * cosines[:, pairs]).sqrt().mean() / 2  # of (C, M (M - 1) / 2)
        return spread
