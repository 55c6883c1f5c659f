"""The mean over the terms of all anchors, and the warning for a batch without any."""

import warnings
from typing import NamedTuple

from torch import Tensor


class RowMean(NamedTuple):
    """A loss, and the number of terms that it is the mean of.

    Attributes:
        loss: Scalar, the sum of the values over the sum of the counts; 0 if there is no term. (H,) for H heads.
        counts: (A,) terms of each anchor; 0 if the anchor has none.
    """

    loss: Tensor
    counts: Tensor


def mean_of(values: Tensor, counts: Tensor) -> RowMean:
    """The mean of the terms of all anchors.

    Args:
        values: (A,) or finer, the sums of the anchors' terms.
        counts: (A,) how many terms each anchor has.

    Returns:
        The loss and the counts.
    """
    return RowMean(values.sum() / counts.sum().clamp(min=1), counts)


def warn_without_terms(mean: RowMean, missing: str) -> Tensor:
    """The loss, with a warning if no anchor of the batch has a term.

    Args:
        mean: The loss and the terms of each anchor.
        missing: What an anchor without a term has not: "two items of a usable label distance".

    Returns:
        The loss of ``mean``.
    """
    if not bool(mean.counts.any()):
        text = f"No anchor of the batch has {missing}: its loss is 0 and contributes no gradient."
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return mean.loss
