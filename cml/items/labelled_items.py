"""Inputs with their labels and everything that belongs to an item: its id, group, weight and place in the user's data.

Every door makes ``LabelledItems``, see ``label_inputs.py``; everything behind the doors takes them. A part of them is a
view: inputs are lazy, and a slice of a memory map or of a range is one.
"""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import Float32, Float64, Int64
from cml.data.input_form import InputForm, Inputs
from cml.distances.jobs.stored_matrix import MOST_ITEMS, replace_costly_distance
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels

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

    def without_equal_weights(self) -> Self:
        """Leave out weights that are all equal, so that items are drawn as if there were none."""
        is_equal = self.weights is not None and bool((self.weights == self.weights[0]).all())
        return replace(self, weights=None) if is_equal else self

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


@dataclass(frozen=True)
class DistanceDemand:
    """How many label distances a learner will ask for."""

    blocks: int  # blocks of distances, one a step
    rows: int  # rows and columns of a block
    all_pairs: bool = False  # whether a search for neighbours will ask for all pairs


def store_costly_distances(
    items: LabelledItems,
    validation: LabelledItems | None,  # items to validate on
    demand: DistanceDemand,
    *,
    quiet: bool = False,
) -> tuple[LabelledItems, LabelledItems | None]:
    """Replace a costly label distance by the matrix of all its distances, where that is worth its cost."""
    parts = [items.labels, items.mirrored_labels, None if validation is None else validation.labels]
    given = [part for part in parts if part is not None]
    if sum(map(len, given)) > MOST_ITEMS:
        return items, validation
    distance, labels = replace_costly_distance(
        items.distance, _join(given), blocks=demand.blocks, rows=demand.rows, all_pairs=demand.all_pairs, quiet=quiet
    )
    if distance is items.distance:
        return items, validation
    ends = np.cumsum([0 if part is None else len(part) for part in parts]).tolist()
    own, mirrored, held_out = (labels[start:end] for start, end in zip([0, *ends], ends, strict=False))
    items = replace(
        items, labels=own, distance=distance, mirrored_labels=None if items.mirrored_labels is None else mirrored
    )
    return items, None if validation is None else replace(validation, labels=held_out, distance=distance)


def _join(parts: Sequence[Labels]) -> Labels:
    """Join labels that were encoded together."""
    if len(parts) == 1:
        return parts[0]
    return Labels({name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays})


@dataclass(frozen=True)
class Presentation:
    """How N items are shown."""

    words: Sequence[str]  # the labels in words
    roles: Sequence[str]  # the role of each item, such as train; "" where there are none
    unit: str  # unit in which label distances are reported
    factor: float = 1.0  # what converts label distances to it
    title: str = ""  # title of a page
    pictures: Sequence[Callable[[], Image.Image]] = ()  # draws each item; none to draw its numbers
    # columns of the labels to colour by, see ``cml.items.shown_columns``; None for those of the labels
    colours: Mapping[str, tuple[NDArray[Any], float | None]] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)  # colours of the drawn labels: word to colour
    note: str = ""  # a remark for a page
    columns: Mapping[str, Any] = field(default_factory=dict)  # further columns of numbers
    texts: Mapping[str, Any] = field(default_factory=dict)  # further columns of texts
    are_known: bool = False  # whether the items are training items again, with other judgements

    @classmethod
    def plain(cls, items: LabelledItems, distance: LabelDistance, role: str = "") -> Self:
        """Show items that are given in Python, whose labels are all that is known of them."""
        words = [describe_label(label) for label in items.read_given_labels(np.arange(len(items)))]
        return cls(words, [role] * len(items), distance.unit)


def describe_label(label: Any) -> str:  # noqa: ANN401 - a label of any form
    """Put a label that was given in Python in words."""
    try:
        return ", ".join(f"{number:.3g}" for number in np.ravel(np.asarray(label, np.float64))[:8].tolist())
    except (TypeError, ValueError):
        return label if isinstance(label, str) else reprlib.repr(label)


class Embedder(Protocol):
    """Embeds inputs, and gives the features that it is compared with."""

    @property
    def label_distance(self) -> LabelDistance:
        """The label distance that the embedding mirrors."""
        ...

    @property
    def form(self) -> InputForm:
        """The form of its inputs."""
        ...

    def embed(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401 - inputs of any kind
        """Embeddings (N, D) of inputs."""
        ...

    def embed_by_reference(self, inputs: Any, *, bar: str = "") -> Float32:  # noqa: ANN401
        """Features (N, F) of inputs that do not depend on the labels."""
        ...

    def embed_stages(self, inputs: Any) -> dict[int, Float32]:  # noqa: ANN401
        """Embeddings (N, D) of inputs by the models that were kept during training, by their steps."""
        ...

    @property
    def reference_name(self) -> str:
        """What tables and pages call those features; "" if there are none."""
        ...
