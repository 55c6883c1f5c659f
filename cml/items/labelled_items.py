"""Inputs with their labels and everything that belongs to an item: its id, group, weight and place in the user's data.

Every door makes ``LabelledItems``, see ``label_inputs.py``; everything behind the doors takes them. A part of them is a
view: inputs are lazy, and a slice of a memory map or of a range is one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.data.input_form import Inputs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.listed_distances import listed_distances

Rows = slice | Int64
HoldOut = Callable[["LabelledItems"], Rows]
"""From items to those that are held out, such as the last ones; see ``cml.training.stages``."""


@dataclass(frozen=True)
class LabelledItems:
    """N inputs and their labels, in the same order."""

    inputs: Inputs  # the inputs, read in batches by their numbers
    labels: Labels  # N encoded labels
    distance: LabelDistance  # the label distance that encoded them
    mirrored_labels: Labels | None = None  # the labels of the mirrored images; None if they are not mirrored one by one
    groups: Int64 | None = None  # (N,) numbers of groups, such as subjects, that a split keeps together; None for none
    weights: Float64 | None = None  # (N,) how often each item is an anchor relative to the others; None for all alike
    # positions of the items in the data that the user gave, a range or (N,); None for 0 to N - 1
    origin: range | Int64 | None = None
    # the labels as the user gave them, by the positions in ``origin``; none where nobody needs them
    given_labels: Sequence[Any] = field(default=(), repr=False)
    # the ids of the user's data, by the positions in ``origin``; none if items have only numbers
    given_ids: Sequence[str] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, rows: Rows) -> Self:
        """Take a part of the items; a slice of arrays is a view."""
        origin = range(len(self)) if self.origin is None else self.origin
        return replace(
            self,
            inputs=self.inputs.subset(rows),
            labels=self.labels[rows],
            mirrored_labels=None if self.mirrored_labels is None else self.mirrored_labels[rows],
            groups=None if self.groups is None else self.groups[rows],
            weights=None if self.weights is None else self.weights[rows],
            origin=origin[rows] if isinstance(rows, slice) else np.asarray(origin)[rows],
        )

    def split(self, rule: HoldOut) -> tuple[Self, Self]:
        """Split off the items that a rule holds out."""
        held_out = rule(self)
        if isinstance(held_out, slice):  # of the last items, so that both parts are views
            start, stop, _ = held_out.indices(len(self))
            if stop == len(self):
                return self.subset(slice(0, start)), self.subset(slice(start, stop))
        is_held_out = np.zeros(len(self), bool)
        is_held_out[held_out] = True
        return self.subset(np.flatnonzero(~is_held_out)), self.subset(np.flatnonzero(is_held_out))

    def block(self, rows: Rows, columns: Rows) -> Float32:
        """Compute the label distances (A, B) from A items to B items."""
        return self.distance.pairwise(self.labels[rows], self.labels[columns])

    def paired(self, rows: Int64, columns: Int64) -> Float32:
        """Compute the label distances (P,) of P pairs of items."""
        return listed_distances(self.distance, self.labels[rows], self.labels, columns[:, None])[:, 0]

    def positions(self, rows: Int64) -> Int64:
        """Find the positions (B,) of B items in the data that the user gave."""
        return rows if self.origin is None else np.asarray(self.origin)[rows]

    @property
    def ids(self) -> Sequence[str]:
        """The N ids of the items: those that were given, or their positions in the user's data."""
        positions = np.arange(len(self)) if self.origin is None else np.asarray(self.origin)
        return [self.given_ids[row] for row in positions.tolist()] if self.given_ids else positions.astype(str).tolist()

    def read_given_labels(self, rows: Int64) -> list[Any]:
        """Read the labels of B items as the user gave them."""
        return [self.given_labels[position] for position in self.positions(rows).tolist()]
