"""RKD-distance: embedding distances should be label distances, both measured in units of their batch mean."""

import torch
from torch import Tensor
from torch.nn import functional

from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.pairs import compare, mask_label_distances
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_flag


def rkd_distance_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, normalize: bool = False
) -> Tensor:
    """RKD-distance as a function; ``RKDDistanceLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point, or (H, B, D) of H heads.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar, or (H,) of H heads; 0 with a warning if fewer than 2 pairs are usable or all label distances are 0.

    Raises:
        UserError: a tensor has another shape or type, or a label distance is NaN or negative.
    """
    mean = rkd_distance_mean(embeddings, mask_label_distances(embeddings, label_distances, mask), normalize=normalize)
    return warn_without_terms(mean, RKDDistanceLoss.missing)


def rkd_distance_mean(embeddings: Tensor, label_distances: Tensor, *, normalize: bool) -> RowMean:
    """The formula of ``rkd_distance_loss``.

    Args:
        embeddings: (B, D), or (H, B, D) of H heads.
        label_distances: (A, B).
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and the used pairs of each anchor; 0 of all if the batch has nothing to learn from.
    """
    distances, labels, used = compare(embeddings, label_distances, normalize=normalize)
    pairs = used.sum()
    learns = (pairs >= 2) & (labels.amax() > 0)
    number, least = pairs.clamp(min=1), torch.finfo(distances.dtype).tiny

    def relative(some: Tensor) -> Tensor:
        """Distances in units of their mean over the used pairs."""
        mean = some.sum(dim=(-2, -1), keepdim=True) / number
        return some / mean.clamp(min=least)

    embedding_ratios = relative(distances.where(used & learns, 0))
    label_ratios = relative(labels / labels.amax()).where(learns, 0)  # over the largest: sums of any unit fit
    terms = functional.smooth_l1_loss(embedding_ratios, label_ratios.expand_as(embedding_ratios), reduction="none")
    counts = used.sum(dim=1) * learns
    return RowMean(terms.sum(dim=(-2, -1)) / counts.sum().clamp(min=1), counts)


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

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``rkd_distance_mean`` with the settings of the module, of embeddings (B, D) and label distances (A, B)."""
        return rkd_distance_mean(embeddings, label_distances, normalize=self.normalize)
