"""Ranked list loss: positives inside a sphere around each anchor, negatives outside a wider one."""

import torch
from torch import Tensor

from cml.losses.class_loss import ClassLoss, check_classes
from cml.losses.direction_regularization import class_masks
from cml.losses.loss import LossInfo
from cml.losses.pairs import embedding_points
from cml.losses.squared_distances import plain_distances, plain_squared_distances
from cml.settings import check_number


class RankedListLoss(ClassLoss):
    """Pull an anchor's positives inside a sphere, and push its negatives out of one that is wider by ``margin``.

    With D the Euclidean distance of L2-normalised embeddings, half the mean over all items a of

        mean over P of ( D_ap - (alpha - margin) )  +  sum over N of w_an (alpha - D_an)

    P are the positives of a with D_ap > alpha - margin, and N its negatives with D_an < alpha. A term without items is
    0. The weights of a's negatives are in proportion to exp(temperature (alpha - D_an)), so that near ones count most,
    and sum to 1. They are constants: the gradient does not pass through them.

    Inputs: embeddings (B, D), class numbers (B,) int64. The embeddings are L2-normalised.

    Relations: ``contrastive`` has two boundaries too, with that of positives at 0, and equal weights.
    ``multi-similarity`` weights positives as well, and mines relative to the anchor's other pairs. The
    ``RankedListLoss`` of pytorch-metric-learning lets the gradient pass through the weights.

    Args:
        alpha: The distance within which negatives are pushed, above ``margin`` and below 2.
        margin: Above 0 and below 2. The width between the two spheres.
        temperature: At least 0. How much more near negatives weigh; 0 weights them equally.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0, 1])
        >>> round(RankedListLoss(alpha=1.5, margin=0.5)(points, classes).item(), 4)
        0.6524

    Reference:
        Wang, Hua, Kodirov, Hu, Garnier, Robertson: Ranked List Loss for Deep Metric Learning, CVPR 2019.
    """

    info = LossInfo(
        cost="O(B^2)",
        source="Wang et al., CVPR 2019",
        when="Classes that should keep their spread, with a few items of each class in a batch.",
    )
    normalize = True

    def __init__(self, alpha: float = 1.2, margin: float = 0.4, temperature: float = 10.0) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0, below=2, open_=True)
        self.alpha = check_number("alpha", alpha, least=self.margin, below=2, open_=True)
        self.temperature = check_number("temperature", temperature, least=0)

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The formula."""
        check_classes(embeddings, classes)
        look = self.may_check_numbers(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = embedding_points(embeddings, normalize=True)
            positives, negatives = class_masks(classes)
            distances = plain_distances(plain_squared_distances(points, slice(0, len(points)), look=look))  # (B, B)
            far = (distances - (self.alpha - self.margin)).where(positives, 0).clamp(min=0)
            near = (self.alpha - distances).where(negatives, 0).clamp(min=0)
            count = (far > 0).sum(dim=1).clamp(min=1)  # (B,)
            return (far.sum(dim=1) / count + (self._weights(near.detach()) * near).sum(dim=1)).mean() / 2

    def _weights(self, near: Tensor) -> Tensor:
        """Weights (B, B) of the negatives, from what they lack to the boundary, which is 0 for all other pairs."""
        weights = (self.temperature * (near - near.amax(dim=1, keepdim=True))).exp().where(near > 0, 0)
        return weights / weights.sum(dim=1, keepdim=True).clamp(min=torch.finfo(near.dtype).tiny)
