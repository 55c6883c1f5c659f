"""Gains of H-AP: how much each item of the gallery is worth, at the scale of the query's nearest items."""

import numpy as np

from cml.array_types import Float64, Floating

NEIGHBORS = 10
"""The gains fall to 1/e at the label distance of this many nearest items, as in the loss ``h-ap``."""


def graded_gains(
    label_distances: Floating,  # (R, G), infinite where two labels cannot be compared
    nearest: Floating,  # (R, >= min(10, G)) the smallest of each row, rising
) -> Float64:  # (R, G) float64 in 0..1, 0 where nothing can be compared
    """Gains exp(-d / d_10) of all items; they do not depend on the unit of the label distance."""
    near = nearest[:, :NEIGHBORS].astype(np.float64)
    scale = np.where(np.isfinite(near), near, 0).max(axis=1, keepdims=True)
    # where ten items are at distance 0 the others gain nothing
    with np.errstate(over="ignore"):
        ratio: Float64 = label_distances * (-1 / np.maximum(scale, np.finfo(np.float64).tiny))
    return np.exp(ratio, out=ratio)
