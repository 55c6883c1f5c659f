"""Cross-entropy of two softmaxes over an anchor's items, which the soft-target and the kernel loss share.

One softmax says how much weight each item should have, from label distances; the other how much it has, from embedding
distances. Not for losses whose weights do not add up to 1 over the row.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.label_distance_loss import check_batch
from cml.losses.row_blocks import RowMean, RowTerms, mean_over_rows, used_labels


def row_cross_entropy(
    embeddings: Tensor,
    label_distances: Tensor,
    mask: Tensor | None,
    log_weights: Callable[[Tensor], Tensor],
    temperature: float,
    normalize: bool,
) -> RowMean:
    """Mean over anchors of the cross-entropy of softmax(log_weights(D_y)) and softmax(-D / temperature).

    Args:
        embeddings: (B, D).
        label_distances: (A, B).
        mask: (A, B) bool or ``None``.
        log_weights: Logarithm of an item's weight from label distances (R, B), up to a constant of the row.
        temperature: Of squared Euclidean distances D.
        normalize: L2-normalise the embeddings first.

    Returns:
        The loss; an anchor with fewer than 2 used columns has nothing to learn and count 0.
    """
    check_batch(embeddings, label_distances, mask)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        labels, used = used_labels(label_distances, mask, rows, squared.dtype)
        counts = used.sum(dim=1) >= 2  # (R,)
        used &= counts[:, None]
        wanted = log_weights(labels).masked_fill_(~used, -torch.inf).softmax(dim=1)
        log_shares = squared.div_(-temperature).masked_fill_(~used, -torch.inf).log_softmax(dim=1)
        values = -(wanted * log_shares).where(used, 0).sum(dim=1)
        slopes = wanted.sub_(log_shares.exp_()).div_(temperature).where(used, 0)
        return RowTerms(values, counts, slopes)

    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)
