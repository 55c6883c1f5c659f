"""The pairs of labels whose distance is known, of a label distance that knows few: what it can draw from and rank."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class KnownPairs(NamedTuple):
    """P pairs of N labels.

    Attributes:
        first: (P,) positions of one label of each pair. Where distances are symmetric, it is the lower position.
        second: (P,) positions of the other.
        distances: (P,) float32 label distances, finite.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distances: NDArray[np.float32]
