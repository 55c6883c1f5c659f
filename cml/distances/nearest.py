"""Lists of the nearest labels, and how they are picked from a block of distances."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cml.array_types import Float32, Int32, Int64
from cml.errors import UserError


@dataclass(frozen=True)
class Neighbors:
    """The k nearest labels of each of N labels, nearest first.

    Attributes:
        ids: (N, k) int32. Ties go to the lower id. -1 fills a row that has fewer than k comparable labels.
        distances: (N, k) float32 label distances; infinite where the id is -1.

    Example:
        >>> from cml.distances import Euclidean
        >>> distance = Euclidean()
        >>> found = distance.neighbors(distance.encode([1.0, 4.0, 9.0]), 1)
        >>> found.ids.tolist(), found.distances.tolist()
        ([[1], [0], [1]], [[3.0], [3.0], [5.0]])
    """

    ids: Int32
    distances: Float32


Search = Callable[[int, int], Neighbors]  # from (start, stop) to the neighbours of the rows start..stop-1


def check_k(k: int, items: int) -> None:
    """Check that lists of k neighbours can be made."""
    if not 1 <= k < items:
        raise UserError(f"k must be at least 1 and below the number of items, {items}. Got k={k} instead.")


def nearest_columns(
    block: Float32,  # (R, N) float32 distances. Infinite entries are never picked
    k: int,  # how many, 1 <= k <= N
) -> tuple[Int32, Float32]:
    """Pick the k smallest entries of each row, smallest first, ties to the lower column.

    Returns (R, k) int32 columns, -1 where a row has fewer than k finite entries, and their (R, k) float32 distances.
    """
    lowest = block.min(initial=np.inf)
    if not lowest >= 0:  # as NaN is not
        raise UserError(
            f"A label distance gave {'NaN' if np.isnan(lowest) else lowest}; it should give a number >= 0, or infinity "
            "for no comparison."
        )
    border = np.partition(block, k - 1, axis=1)[:, k - 1]  # the k-th smallest value of each row
    chosen = block <= border[:, None]
    counts = np.count_nonzero(chosen, axis=1)
    for row in np.flatnonzero(counts > k):  # more entries tied at the border than there is room for
        tied = np.flatnonzero(block[row] == border[row])
        chosen[row, tied[k - counts[row] :]] = False
    columns = (np.flatnonzero(chosen) % block.shape[1]).reshape(len(block), k)  # ascending in each row
    values = np.take_along_axis(block, columns, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1).astype(np.int32)
    nearest = np.take_along_axis(values, order, axis=1)
    columns[np.isinf(nearest)] = -1
    return columns, nearest


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
