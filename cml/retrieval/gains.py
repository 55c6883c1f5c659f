"""Gains: how much an item of the gallery is worth, to nDCG by its label distance, and to H-AP."""

from collections.abc import Callable, Mapping

import numpy as np

from cml.array_types import Float32, Float64, Floating
from cml.errors import UserError

NEIGHBORS = 10
"""The gains fall to 1/e at the label distance of this many nearest items, as in the loss ``h-ap``."""

_LEAST_EXPONENT = -700.0


def graded_gains(
    label_distances: Floating,  # (R, G), infinite where two labels cannot be compared
    nearest: Floating,  # (R, >= min(10, G)) the smallest of each row, rising
) -> Float64:  # (R, G) float64 in 0..1, below 1e-300 where nothing can be compared
    """Gains exp(-d / d_10) of all items; they do not depend on the unit of the label distance."""
    near = nearest[:, :NEIGHBORS].astype(np.float64)
    scale = np.where(np.isfinite(near), near, 0).max(axis=1, keepdims=True)
    # where ten items are at distance 0 the others gain nothing
    with np.errstate(over="ignore"):
        ratio: Float64 = label_distances * (-1 / np.maximum(scale, np.finfo(np.float64).tiny))
    # numbers that underflow take five times as long
    np.maximum(ratio, _LEAST_EXPONENT, out=ratio)
    return np.exp(ratio, out=ratio)


def compute_gains(
    distances: Float32,  # (R, K) label distances of the items, infinite where they cannot be compared
    label_distances: Float32,  # (R, G) label distances of the whole gallery
    gain: str = "reciprocal",  # a name in ``GAINS``
) -> Float64:  # (R, K) float64 in 0..1; an item that cannot be compared has gain 0
    """Gains of items of each query, by their label distances."""
    if gain not in GAINS:
        raise UserError(f"The 'gain' must be one of {', '.join(GAINS)}. Got {gain!r} instead.")
    return GAINS[gain][1](distances, label_distances)


def _reciprocal(distances: Float32, _: Float32) -> Float64:
    return 1 / (1 + distances.astype(np.float64))


def _exponential(distances: Float32, label_distances: Float32) -> Float64:
    nearest = label_distances.min(axis=1, keepdims=True).astype(np.float64)
    # a factor per query does not change nDCG; without exp(nearest) the gains of far labels would underflow to 0
    return np.exp(np.where(np.isfinite(nearest), nearest, 0) - distances)


def _rank(distances: Float32, label_distances: Float32) -> Float64:
    ordered = np.sort(label_distances, axis=1)
    nearer = np.array([np.searchsorted(row, values) for row, values in zip(ordered, distances, strict=True)])
    return np.where(np.isfinite(distances), 1 / (1 + nearer), 0)


GAINS: Mapping[str, tuple[str, Callable[[Float32, Float32], Float64]]] = {
    "reciprocal": ("1/(1+d)", _reciprocal),
    "exponential": ("exp(-d)", _exponential),
    "rank": ("1/(1+number of nearer items)", _rank),
}
"""Formula and function of each gain of nDCG, by name; d is the label distance."""
