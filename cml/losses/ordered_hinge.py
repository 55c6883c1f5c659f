"""The sum of hinges over ordered pairs of a row, which dense and binary triplets share.

For one anchor: the sum over all pairs (i, j) with order_i < order_j of [D_i - D_j + margin]_+, D the anchor's squared
distances. Dense triplets order by label distance; binary ones put positives before negatives. The slope in D_i counts
the active pairs of i, so counting them is all the work. On the CPU that is O(B log B) a row (numba); on other devices,
and where torch follows the distances, pairs are compared one by one in parts of bounded size.
"""

import torch
from torch import Tensor

from cml.losses.closed_form import is_followed
from cml.losses.embedding_checks import check_matrix
from cml.losses.row_blocks import RowTerms, mean_over_rows
from cml.losses.row_mean import RowMean
from cml.losses.row_order import over_row_chunks, sort_rows

_PAIR_BYTES = 256 << 20  # of a tensor of pairs, where they are compared one by one


def ordered_hinge_mean(
    embeddings: Tensor, order: Tensor, *, margin: float, normalize: bool, block_bytes: int | None = None
) -> RowMean:
    """The mean of hinges over all ordered pairs of all anchors.

    Args:
        embeddings: (B, D) floating point.
        order: (A, B) >= 0: i comes before j if its entry is smaller, equal ones are no pair, and columns with an
            infinite one are left out, as is the anchor's own.
        margin: Margin between squared distances.
        normalize: Whether to L2-normalise the embeddings first.
        block_bytes: See ``mean_over_rows``.

    Returns:
        The loss and the ordered pairs of each anchor.
    """
    check_matrix("embeddings", embeddings)

    def _row_terms(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        return ordered_hinges(squared, labels.abs().masked_fill_(~used, torch.inf), margin)

    return mean_over_rows(embeddings, order, _row_terms, normalize=normalize, block_bytes=block_bytes)


def ordered_hinges(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    """The sum over ordered pairs of [D_i - D_j + margin]_+ of each row, the number of pairs, and the slopes.

    Args:
        squared: (R, B) squared distances D, float32 or float64.
        order: (R, B) of the same type, >= 0; columns with an infinite entry are left out.
        margin: Margin between squared distances.

    Returns:
        The terms of R anchors.
    """
    if squared.device.type == "cpu" and not is_followed(squared):
        return _by_counting(squared, order, margin)
    rows = max(1, _PAIR_BYTES // (squared.element_size() * squared.shape[1] ** 2))
    parts = [
        _pair_by_pair(some_squared, some_order, margin)
        for some_squared, some_order in zip(torch.split(squared, rows), torch.split(order, rows), strict=True)
    ]
    return RowTerms(*(torch.cat(terms) for terms in zip(*parts, strict=True)))


def _by_counting(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    from cml.losses.hinge_counts import sum_hinges  # numba, which takes a second to import

    rows, columns = squared.shape
    values, pairs = torch.empty(rows, dtype=torch.float64), torch.empty(rows, dtype=torch.int64)
    slopes = torch.zeros_like(squared)
    distance = squared.masked_fill(order.isinf(), torch.inf).numpy()

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


def _pair_by_pair(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    order = order.masked_fill(order.isinf(), torch.nan)  # comes neither before nor after anything
    ordered = order[:, :, None] < order[:, None, :]  # (R, B, B)
    hinge = (squared[:, :, None] - squared[:, None, :]).add_(margin).clamp_min_(0).masked_fill_(~ordered, 0)
    active = hinge > 0
    slopes = active.sum(dim=2) - active.sum(dim=1)
    return RowTerms(hinge.sum(dim=(1, 2)), ordered.sum(dim=(1, 2)), slopes.to(squared.dtype))
