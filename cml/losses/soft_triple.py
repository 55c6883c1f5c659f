"""SoftTriple over classes: a softmax over classes that have several centres each."""

from cml.losses.loss import LossInfo
from cml.losses.pml import PmlProxyLoss
from cml.settings import check_above_zero, check_number, check_whole


class SoftTripleLoss(PmlProxyLoss):
    """A softmax over classes of several learnt centres each, for classes that fall into kinds.

    With S_k = sum over the centres m of class k of softmax_m(S_km / gamma) S_km, the mean over items of

        -log( exp(scale (S_y - margin)) / ( exp(scale (S_y - margin)) + sum_{k != y} exp(scale S_k) ) )

    where S_km is the cosine of the item and a centre, and y the item's class. The paper adds a term that merges centres
    of one class; the library leaves it out.

    Inputs: embeddings (B, D), class numbers (B,) int64; ``prepare`` makes the centres.

    Relations: ``proxy-gml`` has several proxies per class too, and looks only at those that are near an item.

    Args:
        centers: M, centres per class, at least 1.
        scale: Above 0.
        gamma: Above 0. How soft the choice among a class's centres is.
        margin: At least 0, a cosine.

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

    def __init__(self, centers: int = 10, scale: float = 20.0, gamma: float = 0.1, margin: float = 0.01) -> None:
        check_whole("centers", centers)
        scale, gamma = check_above_zero("scale", scale), check_above_zero("gamma", gamma)
        margin = check_number("margin", margin, least=0)
        super().__init__("SoftTripleLoss", centers_per_class=centers, la=scale, gamma=gamma, margin=margin)
        self.centers, self.scale, self.gamma, self.margin = centers, scale, gamma, margin
