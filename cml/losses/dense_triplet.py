"""The dense triplet loss: of any two items, the one with the smaller label distance should lie nearer, by a margin."""

import torch
from torch import Tensor

from cml.losses.label_distance_loss import LabelDistanceLoss, Mask
from cml.losses.loss import About
from cml.losses.row_blocks import RowTerms
from cml.losses.row_order import over_row_chunks, sorted_rows
from cml.settings import check_number

_PAIR_BYTES = 256 << 20  # of a tensor of pairs, where they are compared one by one


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
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> label_distances = torch.tensor([[0.0, 2.0, 1.0]])  # anchor 0: item 2 should be nearer than item 1
        >>> DenseTripletLoss(margin=0.5, normalize=False)(points, label_distances).item()
        8.5

    Reference:
        The triplet baseline of Kim, Seo, Laptev, Cho, Kwak: Deep Metric Learning Beyond Binary Supervision, CVPR 2019.
    """

    _when = "Only the order of label distances around each anchor matters, by a margin."
    about = About("O(A B log B), no tensor of triplets", "the baseline of Kim et al., CVPR 2019", _when)
    lacking = "two items of different usable label distance"

    def __init__(self, margin: float = 0.03, normalize: bool = True) -> None:
        super().__init__()
        self.margin = check_number("margin", margin, least=0)
        self.normalize = normalize

    def row_terms(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        """By counting on the CPU, O(B log B) a row (numba); on other devices pair by pair, in parts."""
        order = labels.abs().masked_fill_(~used, torch.inf)
        if squared.device.type == "cpu":
            return _by_counting(squared, order, self.margin)
        rows = max(1, _PAIR_BYTES // (squared.element_size() * squared.shape[1] ** 2))
        split = zip(torch.split(squared, rows), torch.split(order, rows), strict=True)
        parts = [_pair_by_pair(*part, self.margin) for part in split]
        return RowTerms(*(torch.cat(some) for some in zip(*parts, strict=True)))


def dense_triplet_loss(
    embeddings: Tensor, label_distances: Tensor, *, mask: Mask = None, margin: float = 0.03, normalize: bool = True
) -> Tensor:
    """``DenseTripletLoss`` of embeddings (B, D) and label distances (A, B), where a mask (A, B) is True."""
    return DenseTripletLoss(margin, normalize).value(embeddings, label_distances, mask)


def _by_counting(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    """The terms of squared distances (R, B) and an order of their type; columns of infinite order are left out."""
    from cml.losses.hinge_counts import sum_hinges  # numba, which takes a second to import

    rows, columns = squared.shape
    values, pairs = torch.empty(rows, dtype=torch.float64), torch.empty(rows, dtype=torch.int64)
    slopes = torch.zeros_like(squared)
    distance = squared.masked_fill(order.isinf(), torch.inf).numpy()

    def fill(chunk: slice) -> None:
        ascending, by_distance = sorted_rows(distance[chunk])
        in_order, ranks = sorted_rows(order[chunk].gather(1, torch.from_numpy(by_distance)).numpy())
        found = (one[chunk].numpy() for one in (values, pairs, slopes))
        sum_hinges(ascending, by_distance, in_order, ranks, ascending.dtype.type(margin), *found)

    over_row_chunks(fill, rows, columns)
    return RowTerms(values.to(squared.dtype), pairs, slopes)


def _pair_by_pair(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    order = order.masked_fill(order.isinf(), torch.nan)  # comes neither before nor after anything
    ordered = order[:, :, None] < order[:, None, :]  # (R, B, B)
    hinge = (squared[:, :, None] - squared[:, None, :]).add_(margin).clamp_min_(0).masked_fill_(~ordered, 0)
    active = hinge > 0
    slopes = active.sum(dim=2) - active.sum(dim=1)
    return RowTerms(hinge.sum(dim=(1, 2)), ordered.sum(dim=(1, 2)), slopes.to(squared.dtype))
