"""The contract of a protocol: figures of embeddings with labels, as a field reports them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.option_types import convert_options
from cml.protocols.figures import ProtocolResult


@dataclass(frozen=True)
class EmbeddedItems:
    """Embeddings of N items with their labels.

    Attributes:
        embeddings: (N, D) float32.
        labels: N encoded labels.
        groups: (N,) numbers of groups, such as cameras or patients, the same on both sides; None for none.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> labels = distances.get("euclidean").encode([1.0, 2.0])
        >>> len(EmbeddedItems(np.eye(2, dtype=np.float32), labels))
        2
    """

    embeddings: Float32
    labels: Labels
    groups: Int64 | None = None

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Protocol:
    """How a field measures embeddings; a subclass is a frozen dataclass of settings and overrides ``measure``.

    Attributes:
        seed: Random seed of what is drawn.
        uses_training_items: Whether a run compares its queries with the training items, not with the gallery.

    Example:
        >>> from cml import protocols
        >>> protocols.get("few-shot(shots=[1])").shots
        (1,)
    """

    seed: int = 0
    uses_training_items: ClassVar[bool] = False

    def __post_init__(self) -> None:
        convert_options(self)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Measure embeddings.

        Args:
            distance: The label distance that encoded the labels.
            queries: The items that are measured.
            gallery: The items that they are compared with, such as training items; None for the queries themselves.

        Returns:
            The figures.

        Raises:
            UserError: The labels are of a kind that the protocol does not know, or there are too few items.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement measure().")


def read_class_numbers(
    protocol: str, distance: LabelDistance, sides: Sequence[EmbeddedItems]
) -> list[Int64]:  # a number for each item of each side, the same for the same class
    """Number the classes of items; ``UserError`` where labels are not classes."""
    named = [distance.class_names(side.labels) for side in sides]
    known = [names for names in named if names is not None]
    if len(known) < len(named):
        raise UserError(
            f"The protocol {protocol!r} needs labels that are classes. Got the label distance {distance.name!r} "
            "instead: give label_distance='classes' and the class of each item."
        )
    numbers = np.unique(np.concatenate(known), return_inverse=True)[1].astype(np.int64)
    return np.split(numbers, np.cumsum([len(names) for names in known[:-1]]).astype(np.int64))
