"""Sources that list images with a label each: checking the paths, shrinking the pictures, writing the dataset.

Not for: the files of any one dataset, classes and their protocols (class_labels.py), captions (captioned.py).
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from cml.data.image_files import Picture
from cml.data.prepared import ROLES
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.shrink import Shrink
from cml.data_prep.source import made_with
from cml.data_prep.table import Row, number, read_rows
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

Line = TypeVar("Line")
Read = TypeVar("Read")


class Listed(NamedTuple):
    """A line of a list: where it stands ("FILE:LINE"), the image's path, label, role ("": none) and further columns."""

    where: str
    name: str
    label: Any
    role: str
    extra: Mapping[str, Any] = {}


@dataclass(frozen=True)
class ListedSource(DatasetSource):
    """A folder with lists of images and their labels. A source of its own names the files and reads the lists.

    Unless it says otherwise, it is a dataset of numbers whose test images are searched among themselves.
    """

    source: Path
    """The folder of the dataset."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has this many pixels; none keeps the files."""

    task = "value"
    images: ClassVar[str] = ""
    """Where below the folder of ``_files`` all images lie."""

    def _origin(self) -> dict[str, Any]:
        lists, folder = self._files()
        return made_with(self, revision=1, files=lists, images=folder / self.images)

    def _content(self, skip_bad: bool, after: ExitStack) -> Content:
        lists, folder = self._files()
        seen: dict[str, str] = {}
        listed = (("", one) for one in self._listed(lists) if isinstance(one, DataError) or one.role)
        items = list(read_each(listed, lambda _, one: self._item(folder, one, seen)))
        details = self._details()
        good = [item for item in items if isinstance(item, Item)]
        roles = ROLES[:2] if details.get("gallery") == "queries" else ROLES
        for role in roles if skip_bad or len(good) == len(items) else ():  # a bad item is the error itself
            if role not in {item.role for item in good}:
                raise DataError(f"{' and '.join(map(str, lists[:3]))} list no {role} images.")
        return Content(items, details, within=[folder])

    def _files(self) -> tuple[list[Path], Path]:
        """The lists, and the folder that their paths are relative to."""
        raise NotImplementedError

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        """The lines of the lists in order, and what is wrong with one."""
        raise NotImplementedError

    def _details(self) -> dict[str, Any]:
        """What dataset.json says beside."""
        return {"gallery": "queries"}

    def _item(self, folder: Path, one: Listed, seen: dict[str, str]) -> Item:
        path = file_inside(folder, one.name, one.where)
        if (first := seen.setdefault(one.name, one.where)) is not one.where:
            raise DataError(f"{one.where}: {one.name!r} is already in {first}; an image has one line.")
        return Item(one.name, one.role, self._picture(path, one), one.label, extra=one.extra, where=one.where)

    def _picture(self, path: Path, one: Listed) -> Picture:
        return Shrink(self.image_size, sys.maxsize).picture(path)


def table_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Row | DataError]]:
    """The rows of a published CSV file, or what is wrong with one, each with "FILE:LINE".

    Raises:
        DataError: the file is not CSV, or its header lacks one of ``columns``.
    """
    for where, row in read_rows(path):
        if not isinstance(row, DataError) and (lacking := [name for name in columns if name not in row]):
            raise DataError(f"{path}:1: should have a column {lacking[0]!r}. There are: {', '.join(row)}.")
        yield where, row


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


def within(value: object, column: str, where: str, low: float, high: float) -> float:
    """A cell's content as a number from ``low`` to ``high``."""
    if not low <= (found := number(value, column, where, own=False)) <= high:
        raise DataError(f"{where}: {column} should be from {low:g} to {high:g}. Got {found:g} instead.")
    return found
