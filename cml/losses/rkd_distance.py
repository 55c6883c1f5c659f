"""RKD-distance: embedding distances should be label distances, both measured in units of their batch mean."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import About
from cml.losses.pairs import RowMean, compare, mean_of


class RKDDistanceLoss(LabelDistanceLoss):
    r"""Relational distillation of distances over all pairs (anchor a, item j) of a batch.

    The mean over all pairs of

        h( ||f_a - f_j|| / mean  -  D_y(a,j) / mean_y ),   h(x) = x^2 / 2 for |x| <= 1, else |x| - 1/2

    with mean and mean_y the means of the two distances over all used pairs of the batch. The gradient flows through
    mean as well. Scaling, turning or shifting the embeddings and scaling the label distances leave it as it is. A batch
    of fewer than 2 used pairs, or of label distances that are all 0, teaches nothing.

    Relations: ``log-ratio`` is its cousin on a logarithmic scale, where a near pair counts as much as a far one.

    Args:
        normalize: L2-normalise the embeddings first; published without.

    Example:
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> RKDDistanceLoss()(points, 10 * torch.cdist(points, points)).item()
        0.0

    Reference:
        Park et al.: Relational Knowledge Distillation, CVPR 2019, equations 5 to 8, with label distances in the place
        of the teacher's. Sums are means here.
    """

    _when = "Embedding distances should be proportional to label distances, far pairs above all."
    about = About("O(A B)", "Park et al., CVPR 2019", _when)
    lacking = "two items of a usable label distance, or all label distances of the batch are 0"

    def __init__(self, normalize: bool = False) -> None:
        super().__init__()
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """The loss of a batch, with the terms of each anchor."""
        distances, labels, used = compare(embeddings, label_distances, normalize=self.normalize)  # (A, B) each
        pairs = used.sum()
        teaches = (pairs >= 2) & (labels.amax() > 0)
        distances, labels = distances.where(used & teaches, 0), labels / labels.amax()  # of any unit, sums fit
        least = torch.finfo(distances.dtype).tiny
        found, wanted = (one / (one.sum() / pairs.clamp(min=1)).clamp(min=least) for one in (distances, labels))
        terms = functional.smooth_l1_loss(found, wanted.where(teaches, 0), reduction="none")
        return mean_of(terms, used.sum(dim=1) * teaches)


def rkd_distance_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, normalize: bool = False
) -> Tensor:
    """``RKDDistanceLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return RKDDistanceLoss(normalize).value(embeddings, label_distances, mask)
