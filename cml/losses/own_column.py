"""Leave out an anchor's own column: no item is compared with itself.

Row a of the label distances (A, B) belongs to anchor a, which is item a of the batch. So the own columns are the
diagonal of the block; of a block of rows that begins at anchor ``first_anchor``, they are the diagonal shifted by it.
"""

import torch
from torch import Tensor


def comparable_pairs(label_distances: Tensor, first_anchor: int = 0) -> Tensor:
    """The pairs that a loss may use: no anchor with itself, and no infinite label distance.

    Args:
        label_distances: (R, B), rows of consecutive anchors.
        first_anchor: The item that the first row belongs to.

    Returns:
        (R, B) bool.
    """
    used = label_distances < torch.inf  # NaN is not
    used.diagonal(first_anchor).fill_(False)
    return used


def zero_own_column(label_distances: Tensor, first_anchor: int = 0) -> Tensor:
    """Set each anchor's distance to itself to 0, in place.

    Args:
        label_distances: (R, B), rows of consecutive anchors.
        first_anchor: The item that the first row belongs to.

    Returns:
        ``label_distances``.
    """
    label_distances.diagonal(first_anchor).zero_()
    return label_distances


def without_diagonal(square: Tensor) -> Tensor:
    """The entries of a square of label distances (N, N) between different items, (N (N - 1),)."""
    return square[~torch.eye(len(square), dtype=torch.bool, device=square.device)]
