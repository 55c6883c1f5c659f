"""What all inputs of a model have in common: N items of one form, read in batches by their numbers."""

from typing import Any, Protocol, Self, runtime_checkable

from cml.array_types import Int64, Integer
from cml.data.input_form import InputForm


@runtime_checkable
class Inputs(Protocol):
    """N items: ``Images``, ``Vectors``, ``Tensors`` or ``Items``.

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

        Returns one array, (B, ...); of ``Items`` a batch of any kind.
        """
        ...
