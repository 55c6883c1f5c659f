"""A unit for label distances: the part that losses share whose constants depend on the unit of the label distance.

A published constant such as sigma = 1 holds for the label distances of one paper. These losses divide label
distances by a scale first, which ``fit`` finds in the training set, so that one constant serves poses in pixels and
angles alike. Not for losses that are blind to the unit: those that use ranks or ratios only.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from torch import Tensor

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss, check_number, finite_sample


class ScaledLabelLoss(LabelDistanceLoss):
    """Base of the losses that measure label distances in units of a scale.

    Args:
        label_scale: The label distance that counts as 1, in the label's unit; or "auto": the median of the positive
            label distances of a sample of training pairs, found by ``fit``.

    Raises:
        UserError: the scale is neither "auto" nor a number above 0.
    """

    constants: ClassVar[tuple[str, ...]] = ("label_scale",)

    def __init__(self, label_scale: float | Literal["auto"]) -> None:
        super().__init__()
        if isinstance(label_scale, str):
            if label_scale != "auto":
                raise UserError(f"The 'label_scale' must be a number above 0 or 'auto'. Got {label_scale!r} instead.")
        else:
            label_scale = check_number("label_scale", label_scale, least=0, open_=True)
        self.label_scale = label_scale

    def fit(self, label_distances: Tensor) -> None:
        """Find the scale from a sample of training pairs, if it is "auto".

        Args:
            label_distances: (P,) label distances, an item never with itself; infinite ones are left out.

        Raises:
            UserError: the sample has no positive label distance.
        """
        if self.label_scale != "auto":
            return
        sample = finite_sample(label_distances)
        positive = sample[sample > 0]
        if len(positive) == 0:
            raise UserError(
                f"{type(self).__name__} needs label distances above 0 to find its label_scale. Got a sample of zeros "
                "instead; give label_scale as a number."
            )
        self._fitted = {"label_scale": float(np.median(positive.numpy()))}

    def scale(self) -> float:
        """The label distance that counts as 1.

        Raises:
            UserError: it is "auto" and was not fitted.
        """
        return self.constant("label_scale") if self.label_scale == "auto" else float(self.label_scale)
