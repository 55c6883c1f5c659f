"""What leaving out one gallery item changes, which metrics return and intervals by items sum up."""

from typing import NamedTuple

from cml.array_types import Float64, Int64


class Effects(NamedTuple):
    """How leaving out one gallery item changes the values of R queries."""

    # (R, W) positions in the gallery of the items that change a value, each once; further columns hold any item with
    # changes of 0
    items: Int64
    # (R, W, columns) float64: the value without the item less the value with it; NaN where the query then has no value,
    # 0 where it has none anyway
    changes: Float64
