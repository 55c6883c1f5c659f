"""Cross-entropy of two softmaxes over an anchor's items, which the soft-target and the kernel loss share.

One softmax says how much weight each item should have, from label distances; the other how much it has, from embedding
distances. Not for losses whose weights do not add up to 1 over the row.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.pairs import RowMean, check_batch, comparable
from cml.losses.row_blocks import RowTerms, mean_over_rows


def row_cross_entropy(
    embeddings: Tensor,
    label_distances: Tensor,
    log_weights: Callable[[Tensor, Tensor], Tensor],
    temperature: float,
    normalize: bool,
) -> RowMean:
    """Mean over anchors of the cross-entropy of softmax(log_weights(D_y)) and softmax(-D / temperature).

    D are squared Euclidean distances. ``log_weights`` gives the logarithm of an item's weight, 0 for the anchor's
    nearest, from label distances (R, B) and that of the nearest (R, 1); it is given infinity where a pair is not used.
    So far ones may overflow. An anchor with fewer than 2 used columns has nothing to learn and count 0.
    """
    label_distances = check_batch(embeddings, label_distances)

    def row_terms(squared: Tensor, rows: slice) -> RowTerms:
        used = comparable(label_distances[rows], rows.start)
        counts = used.sum(dim=1) >= 2  # (R,)
        labels = label_distances[rows].to(squared.dtype, copy=True).masked_fill_(~used, torch.inf)
        nearest = labels.amin(dim=1, keepdim=True).clamp_(max=torch.finfo(labels.dtype).max)
        wanted = log_weights(labels, nearest).softmax(dim=1)
        log_shares = squared.div_(-temperature).masked_fill_(~used, -torch.inf).log_softmax(dim=1)
        used &= counts[:, None]
        values = -(wanted * log_shares).where(used, 0).sum(dim=1)
        slopes = wanted.sub_(log_shares.exp_()).div_(temperature).where(used, 0)
        return RowTerms(values, counts, slopes)

    return mean_over_rows(embeddings, len(label_distances), row_terms, normalize=normalize)
