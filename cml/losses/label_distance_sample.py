"""The sample of label distances of training pairs, from which the constants of a loss are fitted."""

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from cml.array_types import Float32, Float64
from cml.errors import UserError

FIT_ITEMS = 512  # items whose pairwise label distances fix a loss's constants: 130,816 pairs


class PairwiseDistance(Protocol):
    """The part of a label distance that a sample needs; every ``cml.distances.LabelDistance`` has it.

    One that has ``known_pairs`` too, as those have, may know the distances of few pairs.
    """

    def pairwise(self, a: Any, b: Any) -> Float32:  # noqa: ANN401 - encoded labels
        """Label distances (len(a), len(b))."""


def sample_label_distances(distance: PairwiseDistance, labels: Any, seed: int) -> Float32:  # noqa: ANN401
    """Label distances of all pairs among ``FIT_ITEMS`` labels drawn at random; of known pairs, where few are known.

    Args:
        distance: The label distance.
        labels: N labels, encoded by it.
        seed: Random seed of the draw.

    Returns:
        (P,), each pair once and no item with itself. Of a distance that lists its ``known_pairs``, as many of these at
        most.
    """
    generator = np.random.default_rng(seed)
    known = distance.known_pairs(labels) if hasattr(distance, "known_pairs") else None
    if known is not None:
        sample: Float32 = known.distances
        most = FIT_ITEMS * (FIT_ITEMS - 1) // 2
        return sample if len(sample) <= most else sample[generator.choice(len(sample), most, replace=False)]
    drawn = labels[generator.permutation(len(labels))[:FIT_ITEMS]]
    return np.asarray(distance.pairwise(drawn, drawn)[np.triu_indices(len(drawn), 1)])


def finite_sample(label_distances: Tensor) -> Float64:
    """The finite label distances of a sample.

    Args:
        label_distances: (P,), as ``fit`` got them.

    Returns:
        The finite ones as float64.

    Raises:
        UserError: a label distance is NaN or negative, or none is finite.
    """
    sample = label_distances.detach().to("cpu").double().flatten()
    sample = sample[~sample.isposinf()]
    if not bool((sample >= 0).all()):
        raise UserError("The label distances given to fit must be at least 0. Got a negative or NaN one instead.")
    if len(sample) == 0:
        raise UserError("fit needs label distances of pairs that can be compared. Got no finite one instead.")
    return sample.numpy()
