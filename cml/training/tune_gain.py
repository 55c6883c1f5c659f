"""By how much one embedding scores better than another on held-out items, and how sure that is."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.training.tune_splits import HELD_OUT

LEAST_GAIN = 1.5  # in standard errors


class Gain(NamedTuple):
    """A mean gain over splits of the same items, and its standard error."""

    mean: float
    error: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain exceeds 1.5 times its standard error."""
        return self.mean > LEAST_GAIN * self.error


def measure_gain(scores: Sequence[Float64], others: Sequence[Float64], *, counted: int | None = None) -> Gain:
    """Measure by how much an embedding scores better than another one.

    The variance of a split's mean gain is estimated twice: by the means of all splits, which may be alike by luck, and
    by the items within splits, which know nothing of how training varies. The mean of both is used, as a moderated
    t-test does (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004). Splits share most training
    items, so that their mean varies more than that of m independent ones: by a factor of 1/m + n_held/n_trained (Nadeau
    and Bengio, Machine Learning 52, 2003).

    Args:
        scores: For each of m splits, the scores of its held-out items.
        others: Those of the other embedding.
        counted: The error is that of so many splits at most; None counts all.

    Returns:
        The gain.
    """
    gains = [ours - theirs for ours, theirs in zip(scores, others, strict=True)]
    means = np.array([gain.mean() for gain in gains])
    of_items = np.mean([gain.var(ddof=1) / len(gain) for gain in gains])
    variance = (means.var(ddof=1) + of_items) / 2
    count = len(gains) if counted is None else min(counted, len(gains))
    error = np.sqrt(variance * (1 / count + HELD_OUT / (1 - HELD_OUT)))
    return Gain(float(means.mean()), float(error))
