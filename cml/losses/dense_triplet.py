"""The dense triplet loss: of any two items, the one with the smaller label distance should lie nearer, by a margin."""

from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import LossInfo
from cml.losses.ordered_hinge import ordered_hinge_mean
from cml.losses.pairs import mask_label_distances
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_flag, check_number


def dense_triplet_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, margin: float = 0.03, normalize: bool = True
) -> Tensor:
    """The dense triplet loss as a function; ``DenseTripletLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point.
        label_distances: (A, B), >= 0; infinite where a pair cannot be compared.
        mask: (A, B) bool, True where a pair may be used. ``None``: everywhere.
        margin: At least 0, of squared distances.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        A scalar; 0 with a warning if no anchor has two items of different usable label distance.

    Raises:
        UserError: a tensor has another shape or type, a label distance is NaN or negative, or the margin is negative.
    """
    check_number("margin", margin, least=0)
    order = mask_label_distances(embeddings, label_distances, mask)
    mean = ordered_hinge_mean(embeddings, order, margin=margin, normalize=normalize)
    return warn_without_terms(mean, DenseTripletLoss.missing)


class DenseTripletLoss(LabelDistanceLoss):
    """Triplet hinge over all ordered pairs of all anchors of a batch, without a tensor of triplets.

    The mean over every (a, i, j) with D_y(a,i) < D_y(a,j) of

        [ D(f_a,f_i) - D(f_a,f_j) + margin ]_+

    with D the squared Euclidean distance of embeddings and D_y the label distance; triplets whose hinge is 0 count.
    Items of equal label distance are no pair. The slope in D(f_a,f_i) is a difference of two counts of active triplets,
    which sorting finds; beside the label distances only a block of rows is held.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``log-ratio`` uses how much label distances differ, this one only their order. ``binary-triplet`` is this
    loss for label distances of two values.

    Args:
        margin: At least 0, of squared distances; 0.03 as published, for normalised embeddings.
        normalize: Whether to L2-normalise the embeddings first, as published.

    Raises:
        UserError: the margin is negative.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> label_distances = torch.tensor([[0.0, 2.0, 1.0]])  # anchor 0: item 2 should be nearer than item 1
        >>> DenseTripletLoss(margin=0.5, normalize=False)(points, label_distances).item()
        8.5

    Reference:
        The triplet baseline of Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    """

    info = LossInfo(
        cost="O(A B log B), no tensor of triplets",
        source="the baseline of Kim et al., CVPR 2019",
        when="Only the order of label distances around each anchor matters, by a margin.",
    )
    missing = "two items of different usable label distance"

    def __init__(self, margin: float = 0.03, normalize: bool = True) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0)
        self.normalize = check_flag("normalize", normalize)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> RowMean:
        """``ordered_hinge_mean`` by label distance, of embeddings (B, D) and label distances (A, B)."""
        return ordered_hinge_mean(embeddings, label_distances, margin=self.margin, normalize=self.normalize)
