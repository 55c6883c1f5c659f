"""The names of the fields of a data set, or of the columns of a data frame, that hold inputs and labels."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FieldNames:
    """Where a data set of mappings or a data frame holds inputs and labels; a name that is not needed is None."""

    image: str | None = None  # the column or field of images
    # the columns of vectors: names, a pattern or a prefix; or the fields of inputs
    features: str | Sequence[str] | None = None
    label: str | None = None  # the column or field of labels

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of all fields that hold an input; none if they are to be recognised."""
        names = self.image if self.features is None else self.features
        return () if names is None else (names,) if isinstance(names, str) else tuple(names)
