"""What is known of labels whose distances are known for few pairs: the pairs, or judged triplets."""

from typing import NamedTuple

from cml.array_types import Float32, Int64


class KnownPairs(NamedTuple):
    """P pairs of N labels."""

    first: Int64  # (P,) positions of one label of each pair. Where distances are symmetric, it is the lower position
    second: Int64  # (P,) positions of the other
    distances: Float32  # (P,) float32 label distances, finite
    weights: Float32 | None = None  # (P,) float32, above 0, how much each pair counts; None where all count the same


class KnownTriplets(NamedTuple):
    """T judged triplets of N labels."""

    anchor: Int64  # (T,) positions
    nearer: Int64  # (T,) positions of the item that was judged to be nearer to the anchor
    farther: Int64  # (T,) positions of the other
    counts: Int64  # (T,) how often it was judged so
