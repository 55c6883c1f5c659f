"""How items are shown to people: in words, by pictures, in which unit."""

import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.distances.label_distance import LabelDistance
from cml.items.labelled_items import LabelledItems


@dataclass(frozen=True)
class Presentation:
    """How N items are shown.

    Attributes:
        words: The labels in words.
        roles: The role of each item, such as train; "" where there are none.
        unit: Unit in which label distances are reported.
        factor: What converts label distances to it.
        title: Title of a page.
        pictures: Draws each item; none to draw its numbers.
        colours: Columns of the labels to colour by, see ``cml.explore.label_columns``; None for those of the labels.
        legend: Colours of the drawn labels: word to colour.
        note: A remark for a page.
        columns: Further columns of numbers.
        texts: Further columns of texts.
        are_known: Whether the items are training items again, with other judgements.
    """

    words: Sequence[str]
    roles: Sequence[str]
    unit: str
    factor: float = 1.0
    title: str = ""
    pictures: Sequence[Callable[[], Image.Image]] = ()
    colours: Mapping[str, tuple[NDArray[Any], float | None]] | None = None
    legend: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    columns: Mapping[str, Any] = field(default_factory=dict)
    texts: Mapping[str, Any] = field(default_factory=dict)
    are_known: bool = False

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
