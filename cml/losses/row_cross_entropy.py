"""Cross-entropy of two softmaxes over an anchor's items, which the soft-target and the kernel loss share.

One softmax says how much weight each item should have, by label distances; the other how much it has, by embedding
distances.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.closed_form import to_overwrite
from cml.losses.row_blocks import Constant, RowTerms


def row_cross_entropy(
    squared: Tensor,
    labels: Tensor,
    used: Tensor,
    log_weights: Callable[[Tensor, Tensor], Tensor],
    temperature: Constant,
) -> RowTerms:
    """Cross-entropy of softmax(log_weights(D_y)) and softmax(-D / temperature) of each anchor.

    Args:
        squared: (..., R, B) squared Euclidean distances D, overwritten.
        labels: (R, B) label distances D_y.
        used: (R, B) bool, overwritten.
        log_weights: Gives the logarithm of an item's weight, 0 for the anchor's nearest, of label distances (R, B),
            infinite where not used, and that of the nearest (R, 1). So weights of distant items may overflow to 0.
        temperature: Above 0, of squared distances.

    Returns:
        The value of each anchor and its slopes. An anchor with fewer than 2 used columns counts 0.
    """
    counts = used.sum(dim=1) >= 2  # (R,)
    labels = labels.masked_fill(~used, torch.inf)
    nearest = labels.amin(dim=1, keepdim=True).clamp_(max=torch.finfo(labels.dtype).max)
    wanted = log_weights(labels, nearest).softmax(dim=-1)
    log_shares = squared.div_(-temperature).masked_fill_(~used, -torch.inf).log_softmax(dim=-1)
    used &= counts[:, None]
    values = -(wanted * log_shares).where(used, 0).sum(dim=-1)
    shares = to_overwrite(log_shares, log_shares).exp_()
    slopes = shares.sub_(wanted).div_(-temperature)  # (wanted - shares) / temperature
    return RowTerms(values, counts, slopes.where(used, 0))
