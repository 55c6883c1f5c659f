"""Slow reference of how surprising a label is among those of neighbours: one label, one neighbour at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence


def weigh_neighbors(distances: Sequence[float]) -> list[float]:
    """The weights of the neighbours of an item: a Gaussian as wide as the tenth is far, or the last of fewer."""
    width = distances[min(10, len(distances)) - 1]
    kernels = [math.exp(-(distance**2) / (2 * width**2)) for distance in distances]
    return [kernel / sum(kernels) for kernel in kernels]


def surprise(
    to_neighbors: Sequence[float], weights: Sequence[float], to_sample: Sequence[float], bandwidth: float
) -> float:
    """Minus the logarithm of the density of a label among neighbours over that among the sample, with a floor.

    Args:
        to_neighbors: Its distances to the labels of the neighbours.
        weights: Of the neighbours; their sum is 1.
        to_sample: Its distances to the labels of the sample.
        bandwidth: Standard deviation of the kernel.
    """
    return -math.log(_ratio(to_neighbors, weights, to_sample, bandwidth) + 0.02)


def log_likelihood(
    to_neighbors: Sequence[float], weights: Sequence[float], to_sample: Sequence[float], bandwidth: float
) -> float:
    """The logarithm of the likelihood of a label, of which one in twenty is drawn at random, over that at random."""
    return math.log(0.95 * _ratio(to_neighbors, weights, to_sample, bandwidth) + 0.05)


def _ratio(
    to_neighbors: Sequence[float], weights: Sequence[float], to_sample: Sequence[float], bandwidth: float
) -> float:
    among_neighbors = 0.0
    for distance, weight in zip(to_neighbors, weights, strict=True):
        among_neighbors += weight * _kernel(distance, bandwidth)
    among_all = 0.0
    for distance in to_sample:
        among_all += _kernel(distance, bandwidth) / len(to_sample)
    return among_neighbors / max(among_all, 1 / len(to_sample))


def _kernel(distance: float, bandwidth: float) -> float:
    return 0.0 if math.isinf(distance) else math.exp(-((distance / bandwidth) ** 2) / 2)
