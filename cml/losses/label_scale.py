"""The label scale: a unit of label distances, for the losses whose constants depend on the label's unit.

A published constant such as sigma = 1 holds for the label distances of one paper. These losses divide label distances
by a scale first, which ``fit`` finds in the training set, so that one constant serves pixels and angles alike. Losses
that use only ranks or ratios of label distances need no scale.
"""

import numpy as np
from torch import Tensor

from cml.array_types import Float64
from cml.errors import UserError
from cml.losses.label_distance_loss import Auto, LabelDistanceLoss
from cml.losses.label_distance_sample import finite_sample
from cml.settings import check_auto


class ScaledLabelLoss(LabelDistanceLoss):
    """Base of the losses that measure label distances in units of a scale.

    Args:
        label_scale: The label distance that counts as 1, above 0, or "auto": the median of the positive label distances
            that ``fit`` sees.
    """

    constant_names = ("label_scale",)

    def __init__(self, label_scale: Auto) -> None:
        super().__init__()
        self.label_scale = check_auto("label_scale", label_scale)

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """Find the scale, if it is "auto".

        Args:
            label_distances: (P,) of training pairs.

        Returns:
            The scale by its name; nothing if the setting is a number.

        Raises:
            UserError: no label distance is above 0.
        """
        if self.label_scale != "auto":
            return {}
        return {"label_scale": fit_label_scale(finite_sample(label_distances), type(self).__name__)}


def fit_label_scale(sample: Float64, loss: str) -> float:
    """The median of the positive label distances of a sample.

    Args:
        sample: (P,) finite label distances of training pairs.
        loss: Name of the loss, for the message.

    Returns:
        The scale in the label's unit.

    Raises:
        UserError: no label distance is above 0.
    """
    positive = sample[sample > 0]
    if len(positive) == 0:
        raise UserError(
            f"{loss} needs label distances above 0 to find its label_scale. "
            "Got a sample of zeros instead; give label_scale as a number."
        )
    return float(np.median(positive))
