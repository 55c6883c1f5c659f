"""The nearest items of queries, deep enough to know the lists without some of the items too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.errors import UserError
from cml.protocols.protocol import EmbeddedItems
from cml.retrieval.other_groups import find_other_groups

_SPARE = 20  # items, beside as many as the list has: the jackknife leaves out a twentieth of the items


@dataclass(frozen=True)
class NearestLists:
    """Positions (Q, L) of the nearest items of other groups, nearest first, of which a list has the first k."""

    positions: Int64
    is_usable: Bools  # (Q, L)
    k: int

    @classmethod
    def find(cls, left: Float32, right: Float32, groups: tuple[Int64, Int64], k: int) -> NearestLists:
        """Search the rows of ``right`` for those of ``left``; ``UserError`` where a row has none of another group."""
        depth = min(len(right), 2 * k + _SPARE)
        _, positions, is_usable = find_other_groups(left, right, depth, *groups)
        if not is_usable[:, 0].all():
            raise UserError("A query has no item of another group to be compared with.")
        return cls(positions, is_usable, min(k, int(is_usable.sum(axis=1).min())))

    def take(self, kept: Bools) -> tuple[Int64, Bools]:
        """The lists (Q, k) of the items that are kept, (G,), and which places are filled."""
        is_kept = self.is_usable & kept[self.positions]
        first = np.argsort(~is_kept, axis=1, kind="stable")[:, : self.k]
        return np.take_along_axis(self.positions, first, axis=1), np.take_along_axis(is_kept, first, axis=1)


def number_other_groups(queries: EmbeddedItems, gallery: EmbeddedItems | None) -> tuple[Int64, Int64]:
    """Numbers of groups, (Q,) and (G,), such that an item is compared with those of other groups alone."""
    if queries.groups is not None and (gallery is None or gallery.groups is not None):
        theirs = queries.groups if gallery is None or gallery.groups is None else gallery.groups
        return queries.groups, theirs
    own = np.arange(len(queries))
    return own, own if gallery is None else np.arange(len(queries), len(queries) + len(gallery))
