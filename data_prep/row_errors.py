"""Reading row by row, with the error of a bad row in its place."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from cml.errors import DataError

Line = TypeVar("Line")


Read = TypeVar("Read")


def read_each(
    rows: Iterable[tuple[str, Line | DataError]], read: Callable[[str, Line], Read]
) -> Iterator[Read | DataError]:
    """What ``read`` makes of each row that is no error and of where it stands, or what is wrong with it."""
    for where, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            yield read(where, row)
        except DataError as error:
            yield error
