"""What is known of labels whose distances are known for few pairs: the pairs, or judged triplets."""

from typing import NamedTuple

from cml.array_types import Float32, Int64


class KnownPairs(NamedTuple):
    """P pairs of N labels.

    Attributes:
        first: (P,) positions of one label of each pair. Where distances are symmetric, it is the lower position.
        second: (P,) positions of the other.
        distances: (P,) float32 label distances, finite.
        weights: (P,) float32, above 0, how much each pair counts; None where all count the same.
    """

    first: Int64
    second: Int64
    distances: Float32
    weights: Float32 | None = None


class KnownTriplets(NamedTuple):
    """T judged triplets of N labels.

    Attributes:
        anchor: (T,) positions.
        nearer: (T,) positions of the item that was judged to be nearer to the anchor.
        farther: (T,) positions of the other.
        counts: (T,) how often it was judged so.
    """

    anchor: Int64
    nearer: Int64
    farther: Int64
    counts: Int64
