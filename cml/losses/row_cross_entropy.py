"""Cross-entropy of two softmaxes over an anchor's items, which the soft-target and the kernel loss share.

One softmax says how much weight each item should have, from label distances; the other how much it has, from embedding
distances. Not for losses whose weights do not add up to 1 over the row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.pairs import RowMean, compare, mean_of


def row_cross_entropy(
    embeddings: Tensor,
    label_distances: Tensor,
    log_weights: Callable[[Tensor], Tensor],
    temperature: float,
    normalize: bool,
) -> RowMean:
    """Mean over anchors of the cross-entropy of softmax(log_weights(D_y)) and softmax(-D / temperature).

    Args:
        embeddings: (B, D).
        label_distances: (A, B).
        log_weights: Logarithm of an item's weight from label distances (A, B), up to a constant of the row.
        temperature: Of squared Euclidean distances D.
        normalize: L2-normalise the embeddings first.

    Returns:
        The loss; an anchor with fewer than 2 used columns has nothing to learn and count 0.
    """
    squared, labels, used = compare(embeddings, label_distances, normalize=normalize, squared=True)  # (A, B) each
    counts = used.sum(dim=1) >= 2
    lowest = torch.finfo(squared.dtype).min  # and not -inf, of which a row without an item would make NaN
    wanted = log_weights(labels).masked_fill_(~used, lowest).softmax(dim=1)
    log_shares = (squared / -temperature).masked_fill(~used, lowest).log_softmax(dim=1)
    return mean_of(-(wanted * log_shares).where(used & counts[:, None], 0), counts)
