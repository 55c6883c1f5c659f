"""What is known of labels whose distances are known for few pairs: the pairs, or judged triplets."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class KnownPairs(NamedTuple):
    """P pairs of N labels.

    Attributes:
        first: (P,) positions of one label of each pair. Where distances are symmetric, it is the lower position.
        second: (P,) positions of the other.
        distances: (P,) float32 label distances, finite.
        weights: (P,) float32, above 0, how much each pair counts; None where all count the same.
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    distances: NDArray[np.float32]
    weights: NDArray[np.float32] | None = None


class KnownTriplets(NamedTuple):
    """T judged triplets of N labels.

    Attributes:
        anchor: (T,) positions.
        nearer: (T,) positions of the item that was judged to be nearer to the anchor.
        farther: (T,) positions of the other.
        counts: (T,) how often it was judged so.
    """

    anchor: NDArray[np.int64]
    nearer: NDArray[np.int64]
    farther: NDArray[np.int64]
    counts: NDArray[np.int64]
