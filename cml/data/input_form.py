"""The form of a model's inputs: images, vectors, tensors or items of any kind, and their shape."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cml.data.bands import count_bands
from cml.errors import UserError

InputKind = Literal["images", "vectors", "tensors", "items"]
Missing = Literal["refuse", "mean"]

_MOST_CHANNELS = 4096
_MOST_NUMBERS = 1 << 28  # in one item: an untrusted file may hold any shape


@dataclass(frozen=True)
class InputForm:
    """The form of inputs, which a trained model keeps."""

    # ``images`` are resized and normalised, ``vectors`` standardised, ``tensors`` are passed on as they are, ``items``
    # are what a function of the user's own joins to batches
    kind: InputKind = "images"
    # the shape of one item: (F,) for vectors, any for tensors, () for images and items, which may have any size
    shape: tuple[int, ...] = ()
    columns: tuple[str, ...] = ()  # the names of the F numbers of a vector, if it came from columns of a table
    whole: bool = False  # whether tensors hold whole numbers, such as token ids
    missing: Missing = "refuse"  # what becomes of a missing number (NaN) of a vector: an error, or the column's mean
    fields: tuple[str, ...] = ()  # the names of the fields that hold an input, if it came from a data set of mappings
    channels: int = 3  # the bands of images. Three are read as RGB of 8 bits; of any other number nothing is converted

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape) or math.prod(self.shape) > _MOST_NUMBERS:
            raise UserError(
                f"The 'shape' of an input must have positive sizes, and at most {_MOST_NUMBERS:,} numbers. "
                f"Got {self.shape} instead."
            )
        if not 1 <= self.channels <= _MOST_CHANNELS:
            raise UserError(f"Images have 1 to {_MOST_CHANNELS:,} bands. Got {self.channels} instead.")
        if self.kind == "vectors" and len(self.shape) != 1:
            raise UserError(f"The 'shape' of a vector must be (F,). Got {self.shape} instead.")
        if self.columns and len(self.columns) != self.shape[0]:
            raise UserError(f"There must be a name for each of {self.shape[0]} numbers. Got {len(self.columns)} names.")

    def __str__(self) -> str:
        """The form in words, such as ``768 numbers``."""
        if self.kind == "images" and self.channels != 3:
            return f"images of {count_bands(self.channels)}"
        if self.kind in ("images", "items"):
            return self.kind
        if self.kind == "vectors":
            return f"{self.shape[0]} numbers"
        return f"tensors of {' x '.join(map(str, self.shape)) or 'one number'}"

    def column_name(
        self,
        column: int,  # its position, from 0
    ) -> str:  # ``column 3``, with the name that the table gave it, if any
        """Name a number of a vector for messages."""
        return f"column {column} ({self.columns[column]!r})" if self.columns else f"column {column}"

    def describe_constant(
        self, columns: Sequence[int], noun: str = "vectors"
    ) -> str:  # a sentence without a full stop; "" if there are none
        """Name the numbers of vectors that are the same in all rows, the first three of many."""
        if not columns:
            return ""
        names = ", ".join(map(self.column_name, columns[:3])) + (", ..." if len(columns) > 3 else "")
        count = f"{len(columns)} of {self.shape[0]}"
        return f"{count} columns of the {noun} are constant and carry no information about the label: {names}"
