"""Judged pairs as labels: an item's label names the items that it was compared with, and their distances."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.judged_labels import (
    join_judgements,
    join_tables,
    match_items,
    pack_judgements,
    read_item,
    same_items,
)
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs

_FORM = '["17", "4 0.25", "9 1.5 2"]: the item\'s number, then of each other item its number, distance and weight'


class RepeatedPairs(NamedTuple):
    """The J judgements of those pairs that were judged several times."""

    first: Int64  # (J,) position of the label of one item of the pair
    second: Int64  # (J,) that of the other
    distances: Float64  # (J,) the distance by each judgement


@dataclass(frozen=True)
class JudgedPairs(LabelDistance):
    """The distances of judged pairs; other pairs cannot be compared.

    A label is a list of texts: the number of its item, and for each item that it was judged with that item's number,
    the distance and, if it is not 1, the weight. Where a pair was judged several times, the distance by each judgement
    follows in one of its two labels. ``PairJudgements`` makes such labels of a table. A pair is known if
    either of its labels names the other; of two distances the smaller counts.

    Attributes:
        unit: The unit of the distances, for tables and axes.

    Example:
        >>> distance = JudgedPairs()
        >>> labels = distance.encode([["0", "1 0.5"], ["1", "0 0.5", "2 3"], ["2", "1 3"]])
        >>> distance.pairwise(labels[:2], labels).tolist()
        [[0.0, 0.5, inf], [0.5, 0.0, 3.0]]
    """

    unit: str = "judged units"
    name: ClassVar[str] = "judged-pairs"
    judged: ClassVar[Literal["", "pairs", "triplets"]] = "pairs"

    @property
    def is_partial(self) -> bool:
        """True: most pairs were never judged."""
        return True

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Check and pack labels.

        Returns arrays ``items`` (N,), ``judgements`` (N,) of tables (J, 3): other item, distance, weight, and
        ``repeats`` (N,) of tables (R, 2): other item and distance of each judgement of a pair that was judged several
        times.
        """
        packed = pack_judgements(labels, 3, _read_judgement, _FORM)
        repeats = np.empty(len(labels), object)
        for position, label in enumerate(labels):
            rows = [row for text in label[1:] for row in _read_repeats(text)]
            repeats[position] = np.array(rows, np.float64).reshape(len(rows), 2)
        return Labels({**packed.arrays, "repeats": repeats})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Look up the distances between all labels of two sides."""
        block = np.full((len(a), len(b)), np.inf, np.float32)
        for side, other, view in ((a, b, block), (b, a, block.T)):
            owners, table = join_judgements(side)
            which, places = match_items(table[:, 0], other)
            np.minimum.at(view, (owners[which], places), table[which, 1].astype(np.float32))
        block[same_items(a, b)] = 0
        return block

    def known_pairs(self, labels: Labels) -> KnownPairs:
        """List the judged pairs of two of the labels."""
        owners, table = join_judgements(labels)
        which, places = match_items(table[:, 0], labels)
        first, second = np.minimum(owners[which], places), np.maximum(owners[which], places)
        values = table[which, 1:].astype(np.float32)
        order = np.lexsort((values[:, 0], second, first))
        _, once = np.unique(first[order] * len(labels) + second[order], return_index=True)
        kept = order[once]
        return KnownPairs(first[kept], second[kept], values[kept, 0], values[kept, 1])

    def repeated_pairs(self, labels: Labels) -> RepeatedPairs:
        """List the judgements of those pairs of two of the labels that were judged several times.

        Args:
            labels: N encoded labels, each of another item.

        Returns:
            The judgements.
        """
        owners, table = join_tables(labels.arrays["repeats"])
        which, places = match_items(table[:, 0], labels)
        return RepeatedPairs(owners[which], places, table[which, 1])


def _read_judgement(text: str) -> tuple[float, float, float]:
    """Other item, distance and weight of a text such as "4 0.25 2"."""
    other, distance, *rest = text.split()
    weight, *judged = rest or ["1"]
    numbers = [float(distance), *map(float, judged)]
    if not (all(0 <= number < np.inf for number in numbers) and 0 < float(weight) < np.inf and len(judged) != 1):
        raise ValueError("out of range")
    return read_item(other), numbers[0], float(weight)


def _read_repeats(text: str) -> list[tuple[int, float]]:
    """Other item and distance of each judgement of a text such as "4 0.25 2 0.2 0.3"."""
    other, _, *rest = text.split()
    return [(int(other), float(distance)) for distance in rest[1:]]
