"""Items of any kind as inputs: graphs, sequences, texts, which a function of the user's own joins to batches."""

from collections.abc import Callable
from typing import Any, Self

from cml.array_types import Int64, Integer
from cml.data.dataset_items import DatasetItems
from cml.data.input_form import InputForm
from cml.errors import UserError
from cml.processes.out_of_memory import is_out_of_memory

Collate = Callable[[list[Any]], Any]
"""From a list of inputs to a batch: a tensor, a tuple or dict of tensors, or an object with ``.to(device)``."""


class Items:
    """N items of any kind, read anew at each use and joined by a function of the user's own.

    ``reads_anew``: true, for an item may differ at each read.
    """

    reads_anew = True

    def __init__(self, source: DatasetItems, collate: Collate) -> None:
        if not callable(collate):
            raise UserError(f"'collate' must be a function of a list of inputs. Got {type(collate).__name__} instead.")
        self._source = source
        self._collate = collate
        self.form = InputForm("items", fields=self._source.fields)  # the kind ``items``, of no shape

    def __len__(self) -> int:
        return len(self._source)

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the items, without reading them."""
        return type(self)(self._source[items], self._collate)

    def load(self) -> None:
        """Do nothing: items are read when they are used."""

    def read(
        self,
        items: Integer,  # their positions, (B,)
    ) -> Any:  # noqa: ANN401 - a batch of any kind
        """Read some items and join them.

        Returns what ``collate`` makes of them.
        """
        return self.join(self.read_each(items), items)

    def read_each(self, items: Integer) -> list[Any]:  # items (B,)
        """Read some items, without joining them."""
        return [self._source[item] for item in items.tolist()]

    def join(
        self,
        values: list[Any],
        items: Integer,  # their positions, (B,), for messages
    ) -> Any:  # noqa: ANN401 - a batch of any kind
        """Join items to a batch.

        Returns what ``collate`` makes of them.
        """
        try:
            return self._collate(values)
        except UserError:
            raise
        except Exception as error:  # a function of the user's own may raise anything
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
            numbers = [self._source.position(item) for item in items.tolist()]
            shown = f"{', '.join(map(str, numbers[:5]))}{', ...' if len(numbers) > 5 else ''}"
            kind = type(values[0]).__name__ if values else "nothing"
            raise UserError(
                f"'collate' fails on a list of {len(values)} inputs of type {kind}, the items {shown} ({reason})."
            ) from error
