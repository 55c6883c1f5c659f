"""A unit for label distances: the part that losses share whose constants depend on the unit of the label distance.

A published constant such as sigma = 1 holds for the label distances of one paper. These losses divide label
distances by a scale first, which ``fit`` finds in the training set, so that one constant serves poses in pixels and
angles alike. Not for losses that are blind to the unit: those that use ranks or ratios only.
"""

from typing import Literal

import numpy as np
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, finite_sample
from cml.settings import check_auto


class ScaledLabelLoss(LabelDistanceLoss):
    """Base of the losses that measure label distances in units of a scale.

    ``label_scale`` is the label distance that counts as 1; "auto" is the median of the positive ones that ``fit`` sees.
    """

    constants = ("label_scale",)

    def __init__(self, label_scale: float | Literal["auto"]) -> None:
        super().__init__()
        self.label_scale = check_auto("label_scale", label_scale)

    def to_find(self) -> tuple[str, ...]:
        """The scale, if it is "auto"."""
        return self.constants if self.label_scale == "auto" else ()

    def find_constants(self, label_distances: Tensor) -> dict[str, float]:
        """The scale, if it is "auto"."""
        if self.label_scale != "auto":
            return {}
        sample = finite_sample(label_distances)
        positive = sample[sample > 0]
        if len(positive) == 0:
            raise UserError(
                f"{type(self).__name__} needs label distances above 0 to find its label_scale. Got a sample of zeros "
                "instead; give label_scale as a number."
            )
        return {"label_scale": float(np.median(positive))}

    def scale(self) -> float:
        """The label distance that counts as 1."""
        return self.constant("label_scale") if self.label_scale == "auto" else float(self.label_scale)
