"""The 11 room layout types of the LSUN challenge."""

import numpy as np

from cml.array_types import UInt8
from cml.data_prep.layout_masks import CEILING, FLOOR, FRONT, LEFT, RIGHT

LAYOUT_TYPES: tuple[frozenset[int], ...] = tuple(
    frozenset(ids)
    for ids in (
        *((LEFT, FRONT, RIGHT, FLOOR, CEILING), (LEFT, FRONT, RIGHT, FLOOR), (LEFT, FRONT, RIGHT, CEILING)),
        *((LEFT, RIGHT, CEILING), (LEFT, RIGHT, FLOOR), (LEFT, RIGHT, FLOOR, CEILING), (FRONT, FLOOR, CEILING)),
        *((LEFT, FRONT, RIGHT), (FRONT, CEILING), (FRONT, FLOOR), (LEFT, RIGHT)),
    )
)
"""The 11 layout types of the LSUN challenge by number: the surfaces in view, which also say which of them touch.

One wall in view is the front wall; two, which meet in a corner, are left and right; of three the middle one is the
front. Source: the challenge's corner orders in its toolkit and in the published relabelling.
"""


def layout_type(mask: UInt8) -> int | None:
    """Number of the LSUN layout type of a mask (H, W) of ids; None if it is none of them."""
    present = frozenset(np.unique(mask).tolist())
    return LAYOUT_TYPES.index(present) if present in LAYOUT_TYPES else None
