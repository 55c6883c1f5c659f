"""Leaving out the own column: where the queries are the gallery, a query does not find itself."""

import numpy as np

from cml.array_types import Floating


def mask_own_column(
    block: Floating,  # (R, G) distances of the queries in ``rows`` to all items
    rows: slice,
) -> None:
    """Set the distance of each query to itself to infinity, in place."""
    block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf
