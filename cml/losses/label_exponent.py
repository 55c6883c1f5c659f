"""The fit of the label exponent and of the floor of label distances, for the log-ratio loss.

The exponent p of a label distance D_y makes p log D_y spread by 1 over training pairs, whatever unit and power the
label distance has. The floor is the label distance below which all pairs count as equally near.
"""

import numpy as np

from cml.array_types import Float64
from cml.errors import UserError


def fit_floor(sample: Float64, quantile: float) -> float:
    """A quantile of the positive label distances of a sample.

    Args:
        sample: (P,) finite label distances of training pairs.
        quantile: In [0, 1).

    Returns:
        The floor in the label's unit; 0 for the quantile 0.

    Raises:
        UserError: no label distance is above 0.
    """
    positive = _positive(sample)
    return float(np.quantile(positive, quantile)) if quantile > 0 else 0.0


def fit_label_exponent(sample: Float64, floor: float, zero_factor: float) -> float:
    """1 / standard deviation of the log label distances of a sample.

    Args:
        sample: (P,) finite label distances of training pairs.
        floor: Label distances below it are raised to it. 0: those of 0 are left out, as the loss leaves them out.
        zero_factor: Label distances of 0 are raised to this fraction of the floor.

    Returns:
        The exponent.

    Raises:
        UserError: no label distance is above 0, or all are equal.
    """
    kept = np.where(sample > 0, sample.clip(min=floor), zero_factor * floor) if floor > 0 else _positive(sample)
    spread = float(np.log(kept).std())
    if not spread > 1e-6:
        raise UserError(
            "label_exponent='auto' divides by the spread of the log label distances, and the sample's are all "
            f"equal (standard deviation {spread:g}): there is nothing to learn from them. Check the label distance."
        )
    return 1 / spread


def _positive(sample: Float64) -> Float64:
    positive = sample[sample > 0]
    if len(positive) == 0:
        raise UserError("LogRatioLoss needs label distances above 0 to fit. Got a sample of zeros instead.")
    return positive
