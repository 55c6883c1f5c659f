"""The smallest entries of each row of a block of distances: what exact nearest-neighbour lists are made of."""

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

Float32 = NDArray[np.float32]


def check_k(k: int, items: int) -> None:
    """Raise ``UserError`` unless lists of ``k`` neighbours can be made of so many items."""
    if not 1 <= k < items:
        raise UserError(f"k must be at least 1 and below the number of items, {items}. Got k={k} instead.")


def nearest_columns(block: Float32, k: int) -> tuple[NDArray[np.int32], Float32]:
    """Columns (R, k) of the k smallest entries of each row of (R, N), smallest first, ties to the lower; and these.

    Infinite entries are never chosen: -1 fills a row that has fewer than k finite ones.

    Raises:
        UserError: an entry is NaN or negative.
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
