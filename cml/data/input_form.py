"""The form of inputs, what all inputs have in common, and which of them a model accepts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Self, runtime_checkable

from cml.array_types import Int64, Integer
from cml.data.bands import count_bands
from cml.errors import UserError

InputKind = Literal["images", "vectors", "tensors", "texts", "items"]
Missing = Literal["refuse", "mean"]

_MOST_CHANNELS = 4096
_MOST_NUMBERS = 1 << 28  # in one item: an untrusted file may hold any shape


@dataclass(frozen=True)
class InputForm:
    """The form of inputs, which a trained model keeps."""

    # ``images`` are resized and normalised, ``vectors`` standardised, ``tensors`` are passed on as they are, ``texts``
    # as lists of strings, ``items`` are what a function of the user's own joins to batches
    kind: InputKind = "images"
    # the shape of one item: (F,) for vectors, any for tensors, () for others, which may have any size
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

    @property
    def has_shape(self) -> bool:
        """Whether all inputs are arrays of one shape, so that blank ones can stand for them."""
        return self.kind not in ("texts", "items")

    def __str__(self) -> str:
        """The form in words, such as ``768 numbers``."""
        if self.kind == "images" and self.channels != 3:
            return f"images of {count_bands(self.channels)}"
        if self.kind == "images" or not self.has_shape:
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


Collate = Callable[[list[Any]], Any]
"""From a list of inputs to a batch: a tensor, a tuple or dict of tensors, or an object with ``.to(device)``."""


@runtime_checkable
class Inputs(Protocol):
    """N items: ``Images``, ``Vectors``, ``Tensors``, ``Texts`` or ``Items``.

    Training, embedding, evaluation and export ask no more of what an item is.
    """

    @property
    def form(self) -> InputForm:
        """Kind and shape of the items."""
        ...

    @property
    def reads_anew(self) -> bool:
        """Whether items come from a data set of the user's own: each read may differ, as by random augmentation."""
        ...

    def __len__(self) -> int: ...

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the items."""
        ...

    def load(self) -> None:
        """Read all items now if they fit into memory and reading them again would take long."""
        ...

    def read(
        self,
        items: Integer,  # their positions, (B,)
    ) -> Any:  # noqa: ANN401 - an array, or a batch of any kind
        """Read some items.

        Returns one array, (B, ...); of ``Texts`` a list of strings, of ``Items`` a batch of any kind.
        """
        ...


@dataclass(frozen=True)
class AcceptedInputs:
    """The inputs that a model accepts."""

    kind: InputKind | None = None  # their kind; None to recognise it
    missing: Missing = "refuse"  # what becomes of a missing number of a vector
    own_backbone: bool = False  # whether the model has a backbone of the user's own, which may take tensors
    channels: int = 3  # the number of bands of images
    # joins a list of inputs of any kind to a batch; None for images, vectors and tensors
    collate: Collate | None = None
