"""Items of a data set that are converted when they are used."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any


class Lazy(Sequence[Any]):
    """Items of a data set, made by ``convert`` of ``source[index]`` and the index on each access."""

    def __init__(
        self,
        source: Any,  # noqa: ANN401
        items: Sequence[int],
        convert: Callable[[Any, int], Any],
        *,
        reads_anew: bool = False,
    ) -> None:
        self._source, self._items, self._convert = source, items, convert
        self.reads_anew = reads_anew

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - an item of any kind, or a Lazy
        if isinstance(index, slice):
            return Lazy(self._source, self._items[index], self._convert, reads_anew=self.reads_anew)
        item = self._items[index]
        return self._convert(self._source[item], item)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))
