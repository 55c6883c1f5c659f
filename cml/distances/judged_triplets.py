"""Judged triplets as labels: an item's label names pairs of items, of which the first is nearer to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from cml.array_types import Float32
from cml.distances.judged_labels import join_judgements, match_items, pack_judgements, read_item, same_items
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs, KnownTriplets
from cml.errors import UserError

_FORM = '["17", "4 9", "4 12 3"]: the item\'s number, then nearer item, farther item and how often it was judged so'


@dataclass(frozen=True)
class JudgedTriplets(LabelDistance):
    """Orders of distances that were judged, "17 is nearer to 4 than to 9"; the distances themselves are not known.

    A label is a list of texts: the number of its item, and for each triplet of which it is the anchor the number of the
    nearer item, that of the farther one and, if it is not 1, how often it was judged so. ``TripletJudgements`` makes
    such labels of a table. Losses over label distances have nothing to learn from; ``logistic-triplet`` has.

    Example:
        >>> distance = JudgedTriplets()
        >>> labels = distance.encode([["0", "1 2", "2 1 3"], ["1"], ["2", "0 1"]])
        >>> triplets = distance.known_triplets(labels)
        >>> triplets.anchor.tolist(), triplets.nearer.tolist(), triplets.counts.tolist()
        ([0, 0, 2], [1, 2, 0], [1, 3, 1])
    """

    name: ClassVar[str] = "judged-triplets"

    @property
    def unit(self) -> str:
        """No distance is known."""
        return "not judged"

    judged: ClassVar[Literal["", "pairs", "triplets"]] = "triplets"

    @property
    def is_partial(self) -> bool:
        """True: no distance between two items is known."""
        return True

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``items`` (N,) and ``judgements`` (N,) of tables (J, 3): nearer item, farther item, count
        """Check and pack labels."""
        return pack_judgements(labels, 3, _read_judgement, _FORM)

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Infinity for two items, 0 for an item and itself."""
        return np.where(same_items(a, b), 0, np.inf).astype(np.float32)

    def known_pairs(self, labels: Labels) -> KnownPairs:
        """Refuse: triplets have no distances."""
        raise UserError(
            "Judged triplets are orders and have no distances: take loss=logistic-triplet and sampler=triplets."
        )

    def known_triplets(self, labels: Labels) -> KnownTriplets:
        """List the triplets of three of the labels."""
        owners, table = join_judgements(labels)
        which, nearer = match_items(table[:, 0], labels)
        among, farther = match_items(table[which, 1], labels)
        which, nearer = which[among], nearer[among]
        return KnownTriplets(owners[which], nearer, farther, table[which, 2].astype(np.int64))


def _read_judgement(text: str) -> tuple[int, int, int]:
    """Nearer item, farther item and count of a text such as "4 12 3"."""
    nearer, farther, *count = text.split()
    if len(count) > 1 or nearer == farther:
        raise ValueError("two items and a count")
    times = read_item(count[0]) if count else 1
    if not times:
        raise ValueError("a count of 0")
    return read_item(nearer), read_item(farther), times
