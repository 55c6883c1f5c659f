"""The dense triplet loss: of any two items, the one with the smaller label distance should lie nearer, by a margin.

For one anchor, it sums over all pairs (i, j) with order_i < order_j the hinge [D_i - D_j + margin]_+, D the anchor's
squared distances. Binary triplets are the same for an order that puts positives before negatives. The slope in D_i
counts the active pairs of i, so counting them is all the work. On the CPU that takes O(B log B) a row
(``hinge_counts.py``). On other devices, pairs are compared one by one in parts of bounded size.
"""

import torch
from torch import Tensor

from cml.losses.anchor_blocks import AnchorMean
from cml.losses.closed_form import RowTerms, mean_over_rows, slopes_by_autograd
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import LossInfo
from cml.losses.pairs import check_matrix
from cml.losses.row_order import over_row_chunks, sort_rows
from cml.settings import check_flag, check_number


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

    def anchor_values(self, squared: Tensor, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The formula, of every pair of items."""
        return ordered_hinges(squared, labels, used, self.margin)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The mean over all ordered pairs of all anchors, with the gradient by counts."""
        look = self.may_check_numbers(embeddings)
        return mean_of_hinges(embeddings, label_distances, margin=self.margin, normalize=self.normalize, look=look)


def ordered_hinges(squared: Tensor, order: Tensor, used: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """The sum (R,) of [D_i - D_j + margin]_+ over pairs of used items with order_i < order_j, and their number (R,)."""
    order = order.where(used, torch.nan)  # comes neither before nor after anything
    ordered = order[:, :, None] < order[:, None, :]  # (R, B, B)
    hinges = (squared[:, :, None] - squared[:, None, :] + margin).relu()
    return hinges.where(ordered, 0).sum(dim=(1, 2)), ordered.sum(dim=(1, 2))


def mean_of_hinges(
    embeddings: Tensor, order: Tensor, *, margin: float, normalize: bool, look: bool, block_bytes: int | None = None
) -> AnchorMean:
    """The mean of hinges over all ordered pairs of all anchors.

    ``order`` (A, B) is at least 0: equal entries are no pair, and columns with an infinite one are left out, as is the
    anchor's own.
    """
    check_matrix("embeddings", embeddings)

    def values(squared: Tensor, order: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        return ordered_hinges(squared, order, used, margin)

    def slopes(squared: Tensor, order: Tensor, used: Tensor) -> RowTerms:
        if squared.device.type == "cpu":
            return hinges_by_counting(squared, order, used, margin)
        size = squared.element_size() * squared.shape[1] ** 2
        return slopes_by_autograd(values, squared, order, used, number_bytes=size)

    return mean_over_rows(embeddings, order, values, slopes, normalize=normalize, look=look, block_bytes=block_bytes)


def hinges_by_counting(squared: Tensor, order: Tensor, used: Tensor, margin: float) -> RowTerms:
    """The same as ``ordered_hinges``, with slopes, by the compiled loop."""
    from cml.losses.hinge_counts import sum_hinges  # numba, which takes a second to import

    order = order.abs().masked_fill_(~used, torch.inf)  # abs: -0 is 0
    rows, columns = squared.shape
    values, pairs = torch.empty(rows, dtype=torch.float64), torch.empty(rows, dtype=torch.int64)
    slopes = torch.zeros_like(squared)
    distance = squared.masked_fill(~used, torch.inf).numpy()

    def fill(chunk: slice) -> None:
        ascending, by_distance = sort_rows(distance[chunk])
        in_order, ranks = sort_rows(order[chunk].gather(1, torch.from_numpy(by_distance)).numpy())
        sum_hinges(
            ascending,
            by_distance,
            in_order,
            ranks,
            ascending.dtype.type(margin),
            values[chunk].numpy(),
            pairs[chunk].numpy(),
            slopes[chunk].numpy(),
        )

    over_row_chunks(fill, rows, columns)
    return RowTerms(values.to(squared.dtype), pairs, slopes)
