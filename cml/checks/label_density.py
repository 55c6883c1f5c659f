"""How likely labels are among those of an item's neighbours, beside all labels: what makes a label surprising.

The density of labels like a given one is a Gaussian kernel of label distances, so that any label distance will do.
Their ratio tells a wrong label better than its distance to the neighbours' labels: it counts what is usual among them,
and takes a label that is far from all others, as at the end of a range, for no error where neighbours have it too.
"""

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels

_MOST_SAMPLED = 300  # labels that stand for all
_QUANTILES = (0.02, 0.05, 0.1, 0.2, 0.4)  # of label distances, which the bandwidth is chosen from
_WRONG = 0.05  # share of labels that the choice of the bandwidth takes for drawn at random
_LEAST_RATIO = 0.02  # below it, a label is not more surprising
_SCALE = 10  # the neighbour whose distance is the width of the weights
_ROWS = 4096  # compared with the sample at a time
_TINY = 1e-12


def weigh_neighbors(
    distances: Float32,  # (N, K) of items to their neighbours, the nearest first
) -> Float64:  # (N, K) weights that sum to 1 for each item
    """Weigh neighbours by a Gaussian kernel that is as wide as the tenth is far."""
    apart = distances.astype(np.float64)
    width = apart[:, min(_SCALE, apart.shape[1]) - 1, None]
    weights = np.exp(-0.5 * np.square(apart / np.maximum(width, _TINY)))
    normalized: Float64 = weights / weights.sum(axis=1, keepdims=True)
    return normalized


class LabelDensity:
    """The density of labels among all, and its ratio to that among some neighbours."""

    def __init__(self, distance: LabelDistance, labels: Labels, *, seed: int = 0) -> None:
        count = len(labels)
        sample = labels[np.sort(np.random.default_rng(seed).permutation(count)[:_MOST_SAMPLED])]
        between = distance.pairwise(sample, sample)[np.triu_indices(len(sample), 1)].astype(np.float64)
        known = between[np.isfinite(between)]
        if not known.any():  # the few labels that differ are not in the sample
            known = np.ones(1)
        # (B,) widths of the kernel that are tried, label distances
        self.bandwidths: Float64 = np.maximum(np.quantile(known, _QUANTILES), _TINY * known.max())
        densities = []
        for start in range(0, count, _ROWS):
            rows = labels[np.arange(start, min(start + _ROWS, count))]
            to_sample = distance.pairwise(rows, sample).astype(np.float64)
            densities.append(np.stack([_kernel(to_sample, width).mean(axis=1) for width in self.bandwidths], axis=1))
        # (N, B) the mean kernel of each label over the sample
        self.densities: Float64 = np.maximum(np.concatenate(densities), 1 / len(sample))

    def surprise(
        self,
        items: Int64,  # (M,) positions of the labels
        to_neighbors: Float64,  # (M, K) distances of the labels to those of some neighbours
        weights: Float64,  # (M, K) of the neighbours, which sum to 1
    ) -> Float64:  # (M,) numbers, about 0 for a label that is as usual among the neighbours as elsewhere, at most 3.9
        """How surprising labels are: minus the logarithm of their density among neighbours over that among all."""
        among_neighbors = np.stack(
            [(weights * _kernel(to_neighbors, width)).sum(axis=1) for width in self.bandwidths], axis=1
        )
        ratios = among_neighbors / self.densities[items]  # (M, B)
        likelihoods = np.log((1 - _WRONG) * ratios[: len(self.densities)] + _WRONG).mean(axis=0)
        surprise: Float64 = -np.log(ratios[:, likelihoods.argmax()] + _LEAST_RATIO)
        return surprise


def _kernel(distances: Float64, width: float) -> Float64:
    """A Gaussian of label distances, 0 where they are infinite."""
    kernel: Float64 = np.exp(-0.5 * np.square(distances / width))
    return kernel
