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
    """How N items are shown."""

    words: Sequence[str]  # the labels in words
    roles: Sequence[str]  # the role of each item, such as train; "" where there are none
    unit: str  # unit in which label distances are reported
    factor: float = 1.0  # what converts label distances to it
    title: str = ""  # title of a page
    pictures: Sequence[Callable[[], Image.Image]] = ()  # draws each item; none to draw its numbers
    # columns of the labels to colour by, see ``cml.explore.label_columns``; None for those of the labels
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
