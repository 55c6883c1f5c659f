"""RKD-distance: embedding distances should be label distances, both measured in units of their batch mean."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.anchor_blocks import AnchorMean, compare
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import LossInfo
from cml.settings import check_flag


class RKDDistanceLoss(LabelDistanceLoss):
    r"""Relational distillation of distances over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        h( ||f_a - f_j|| / mean  -  D_y(a,j) / mean_y ),   h(x) = x^2 / 2 for |x| <= 1, else |x| - 1/2

    with mean and mean_y the means of the two distances over all used pairs of the batch. The gradient flows through
    mean as well. The loss is invariant to scaling, rotating and shifting the embeddings and to scaling the label
    distances. A batch of fewer than 2 used pairs, or of label distances that are all 0, contributes no gradient.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``log-ratio`` compares on a logarithmic scale: there a near pair counts as much as a far one, here far
    pairs weigh more.

    Args:
        normalize: Whether to L2-normalise the embeddings first; published without.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> RKDDistanceLoss()(points, 10 * torch.cdist(points, points)).item()
        0.0

    Reference:
        Park, Kim, Lu, Cho: Relational Knowledge Distillation, CVPR 2019, equations 5 to 8, with label distances in
        place of the teacher's. Sums are means here.
    """

    info = LossInfo(
        cost="O(A B)",
        source="Park et al., CVPR 2019",
        when="Embedding distances should be proportional to label distances, far pairs above all.",
    )
    missing = "two items of a usable label distance, or all label distances of the batch are 0"
    takes_heads = True

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The formula, over all anchors at once: they share both means."""
        look = self.may_check_numbers(embeddings)
        distances, labels, used = compare(embeddings, label_distances, normalize=self.normalize, look=look)
        counts = used.sum(dim=-1)
        number, least = counts.sum(), torch.finfo(distances.dtype).tiny
        largest = labels.amax()
        learns = (number >= 2) & (largest > 0)

        def relative(some: Tensor) -> Tensor:
            """Distances in units of their mean over the used pairs."""
            mean = some.sum(dim=(-2, -1), keepdim=True) / number.clamp(min=1)
            return some * mean.clamp(min=least).reciprocal()

        if not look or bool(number < labels.numel() - len(labels)):  # an anchor's own distance is 0 already
            distances = distances.where(used, 0)
        embedding_ratios = relative(distances)
        label_ratios = relative(labels / largest.clamp(min=least))  # over the largest: sums of any unit fit
        terms = functional.smooth_l1_loss(embedding_ratios, label_ratios.expand_as(embedding_ratios), reduction="none")
        total = terms.sum(dim=(-2, -1)).where(learns, 0)
        return AnchorMean(total / number.clamp(min=1), counts * learns)
