"""The labels of items as a sequence: what ``cml.fit`` takes from judgements."""

from collections.abc import Sequence
from typing import ClassVar, overload


class ItemLabels(Sequence[list[str]]):
    """The label of each of N items, a list of texts."""

    label_distance: ClassVar[str]  # name of the label distance that reads them

    def __init__(self, labels: list[list[str]]) -> None:
        self._labels = labels

    def __len__(self) -> int:
        """N, the number of items."""
        return len(self._labels)

    @overload
    def __getitem__(self, item: int) -> list[str]: ...
    @overload
    def __getitem__(self, item: slice) -> list[list[str]]: ...
    def __getitem__(self, item: int | slice) -> list[str] | list[list[str]]:
        """The label of an item, or those of some."""
        return self._labels[item]
