"""The squares that people were cut out of photographs by, as pose datasets record them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64


def read_crops(columns: Sequence[Mapping[str, Any]]) -> Float64 | None:
    """Read the crop of each person.

    Returns (N, 3) left, top and side in pixels of the photograph; None unless each has "crop" with three numbers.
    """
    try:
        crops = np.array([row["crop"] for row in columns], np.float64)
    except (KeyError, TypeError, ValueError):
        return None
    return crops if crops.ndim == 2 and crops.shape[1] == 3 and np.isfinite(crops).all() else None
