"""The sum of hinges over ordered pairs of a row, which dense and binary triplets share.

For one anchor: the sum over all pairs (i, j) with order_i < order_j of [D_i - D_j + margin]_+, D the anchor's
squared distances. Dense triplets order by label distance; binary ones put positives before negatives. Its slope in D_i
counts the active pairs of i, so counting them is all the work. On the CPU that is O(B log B) a row (numba); on other
devices pairs are compared one by one in blocks of bounded size. Not for hinges that are squared or weighted.
"""

import torch
from torch import Tensor

from cml.losses.row_blocks import RowTerms
from cml.losses.row_order import over_row_chunks, sorted_rows


def ordered_hinge(squared: Tensor, order: Tensor, margin: float, block_bytes: int | None = None) -> RowTerms:
    """Sum over ordered pairs of [D_i - D_j + margin]_+, the number of the pairs, and the slopes.

    Args:
        squared: (R, B) squared distances D, float32 or float64.
        order: (R, B) of the same type, >= 0; i comes before j if its entry is smaller, equal ones are no pair, and
            columns with an infinite one are left out.
        margin: Of squared distances.
        block_bytes: Bound on one tensor of pairs, where pairs are compared one by one; ``None``: 256 MiB.
    """
    if squared.device.type == "cpu":
        return _by_counting(squared, order, margin)
    rows = max(1, (block_bytes or 256 << 20) // (squared.element_size() * squared.shape[1] ** 2))
    blocks = [
        _pair_by_pair(some, its_order, margin)
        for some, its_order in zip(torch.split(squared, rows), torch.split(order, rows), strict=True)
    ]
    return RowTerms(*(torch.cat(parts) for parts in zip(*blocks, strict=True)))


def _by_counting(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    from cml.losses.hinge_counts import sum_hinges  # numba, which takes a second to import

    columns = squared.shape[1]
    values, pairs = torch.empty(len(squared), dtype=torch.float64), torch.empty(len(squared), dtype=torch.int64)
    slopes = torch.zeros_like(squared)
    distance = squared.masked_fill(order.isinf(), torch.inf).numpy()

    def fill(chunk: slice) -> None:
        ascending, by_distance = sorted_rows(distance[chunk])
        ranked_order = order[chunk].gather(1, torch.from_numpy(by_distance)).numpy()
        in_order, ranks = sorted_rows(ranked_order)
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

    over_row_chunks(fill, len(squared), columns)
    return RowTerms(values.to(squared.dtype), pairs, slopes)


def _pair_by_pair(squared: Tensor, order: Tensor, margin: float) -> RowTerms:
    order = order.masked_fill(order.isinf(), torch.nan)  # comes neither before nor after anything
    ordered = order[:, :, None] < order[:, None, :]  # (R, B, B)
    hinge = (squared[:, :, None] - squared[:, None, :]).add_(margin).clamp_min_(0).masked_fill_(~ordered, 0)
    active = hinge > 0
    slopes = active.sum(dim=2) - active.sum(dim=1)
    return RowTerms(hinge.sum(dim=(1, 2)), ordered.sum(dim=(1, 2)), slopes.to(squared.dtype))
