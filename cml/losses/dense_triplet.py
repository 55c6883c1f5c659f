"""The dense triplet loss: of any two items, the one with the smaller label distance should lie nearer, by a margin."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import About
from cml.losses.ordered_hinge import ordered_hinge
from cml.losses.pairs import RowMean, check_batch, comparable
from cml.losses.row_blocks import RowTerms, mean_over_rows
from cml.settings import check_number


class DenseTripletLoss(LabelDistanceLoss):
    """Triplet hinge over all ordered pairs of all anchors of a batch, without a tensor of triplets.

    The mean over every (a, i, j) with D_y(a,i) < D_y(a,j) of

        [ D(f_a,f_i) - D(f_a,f_j) + margin ]_+

    with D the squared Euclidean distance of embeddings and D_y the label distance; triplets whose hinge is 0 count.
    Equal label distances are no pair. The slope in D(f_a,f_i) is a difference of two counts of active triplets, which
    sorting finds; beside the label distances only a block of rows is held.

    Relations: ``log-ratio`` uses how much label distances differ, this one only their order.
    ``binary-triplet`` is this loss for label distances of two values.

    Args:
        margin: At least 0, of squared distances; 0.03 as published, for normalised embeddings.
        normalize: L2-normalise the embeddings first, as published.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> label_distances = torch.tensor([[0.0, 2.0, 1.0]])  # anchor 0: item 2 should be nearer than item 1
        >>> DenseTripletLoss(margin=0.5, normalize=False)(points, label_distances).item()
        8.5

    Reference:
        The triplet baseline of Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    """

    about = About(
        cost="O(A B log B), no tensor of triplets",
        source="the baseline of Kim et al., CVPR 2019",
        when="Only the order of label distances around each anchor matters, by a margin.",
    )
    lacking = "two items of different usable label distance"

    def __init__(self, margin: float = 0.03, normalize: bool = True) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def mean(self, embeddings: Tensor, label_distances: Tensor, block_bytes: int | None = None) -> RowMean:
        """The loss of a batch, with the terms of each anchor.

        Args:
            embeddings: (B, D).
            label_distances: (A, B).
            block_bytes: Bound on one block of distances, and away from the CPU on one of pairs. ``None``: a bound that
                suits the device.
        """
        label_distances = check_batch(embeddings, label_distances)

        def row_terms(squared: Tensor, rows: slice) -> RowTerms:
            labels = label_distances[rows].to(squared.dtype)  # (R, B)
            used = comparable(labels, rows.start)
            return ordered_hinge(squared, labels.abs().masked_fill_(~used, torch.inf), self.margin, block_bytes)

        return mean_over_rows(
            embeddings, len(label_distances), row_terms, normalize=self.normalize, block_bytes=block_bytes
        )


def dense_triplet_loss(
    embeddings: Tensor,
    label_distances: Tensor,
    *,
    mask: Tensor | None = None,
    margin: float = 0.03,
    normalize: bool = True,
) -> Tensor:
    """``DenseTripletLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return DenseTripletLoss(margin, normalize).value(embeddings, label_distances, mask)
