"""Sources that list images with a label each: reading lists, checking paths, shrinking pictures."""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from PIL import Image

from cml.data.image_files import Picture
from cml.data.images import Size, native_size, read_image
from cml.data.prepared import ROLES
from cml.data.prepared_writer import Item
from cml.data_prep.source import Content, DatasetSource, made_with, text_lines
from cml.data_prep.table import Row, number, read_rows
from cml.errors import DataError, UserError
from cml.storage.safe_paths import file_inside

Line = TypeVar("Line")
Read = TypeVar("Read")


@dataclass(frozen=True)
class Shrink:
    """How photographs are shrunk; they are never enlarged, and a file that is small enough is kept as it is."""

    short_side: int | None  # pixels of the shorter side; None keeps every file
    long_side: int = sys.maxsize  # most pixels of the longer side

    def __post_init__(self) -> None:
        if self.short_side is not None and not 16 <= self.short_side <= self.long_side:
            rule = "The short_side should be at least 16 pixels and the long_side no less than it"
            raise UserError(f"{rule}. Got {self.short_side} and {self.long_side} instead.")

    def picture(self, path: Path) -> Picture:
        """The photograph as it shall be stored, made when its turn comes."""
        return path if self.short_side is None else functools.partial(self.shrunk, path)

    def size(self, native: Size) -> Size:
        """The stored (height, width) of a photograph of ``native`` (height, width)."""
        short, long = min(native), max(native)
        scale = 1.0 if self.short_side is None else min(1.0, self.short_side / short, self.long_side / long)
        return max(1, round(native[0] * scale)), max(1, round(native[1] * scale))

    def shrunk(self, photo: Path | bytes) -> Image.Image | bytes:
        """A photograph, or its file's content, as it shall be stored."""
        native = native_size(photo)
        if (size := self.size(native)) != native:
            return Image.fromarray(read_image(photo, size))
        return photo.read_bytes() if isinstance(photo, Path) else photo


class Listed(NamedTuple):
    """A line of a list: where it stands ("FILE:LINE"), the image's path, label, role ("": none) and further columns."""

    where: str
    name: str
    label: Any
    role: str
    extra: Mapping[str, Any] = {}


@dataclass(frozen=True)
class ListedSource(DatasetSource):
    """A folder with lists of images and labels: of numbers, test images searched among themselves, if not said else."""

    source: Path
    """The folder of the dataset; what it holds is said above."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has this many pixels; none keeps the files."""

    task = "value"
    lists: ClassVar[Iterable[str]] = ()  # names of the files
    images: ClassVar[str] = ""  # where below the folder of ``_files`` all images lie
    details: ClassVar[Mapping[str, Any]] = {"gallery": "queries"}

    def _origin(self) -> dict[str, Any]:
        lists, folder = self._files()
        return made_with(self, revision=1, files=lists, images=folder / self.images)

    def _content(self, skip_bad: bool) -> Content:
        lists, folder = self._files()
        seen: dict[str, str] = {}
        listed = (("", one) for one in self._listed(lists) if isinstance(one, DataError) or one.role)
        items = list(read_each(listed, lambda _, one: self._item(folder, one, seen)))
        found = [item.role for item in items if isinstance(item, Item)]
        roles = ROLES[:2] if self.details.get("gallery") == "queries" else ROLES
        for role in roles if skip_bad or len(found) == len(items) else ():  # a bad item is the error itself
            if role not in found:
                raise DataError(f"{' and '.join(map(str, lists[:3]))} list no {role} images.")
        return Content(items, self.details, within=[folder])

    def _files(self) -> tuple[list[Path], Path]:
        """The lists, and the folder that their paths are relative to."""
        return [self.source / name for name in self.lists], self.source

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        """The lines of the lists in order, and what is wrong with one."""
        raise NotImplementedError

    def _item(self, folder: Path, one: Listed, seen: dict[str, str]) -> Item:
        path = file_inside(folder, one.name, one.where)
        if (first := seen.setdefault(one.name, one.where)) is not one.where:
            raise DataError(f"{one.where}: {one.name!r} is already in {first}; an image has one line.")
        return Item(one.name, one.role, self._picture(path, one), one.label, extra=one.extra, where=one.where)

    def _picture(self, path: Path, one: Listed) -> Picture:
        return Shrink(self.image_size).picture(path)


def split_lines(path: Path) -> list[tuple[str, list[str]]]:
    """The lines of a text file, each with "FILE:LINE", cut at white space."""
    if not (lines := [(where, line.split()) for where, line in text_lines(path)]):
        raise DataError(f"{path} is empty.")
    return lines


def table_rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, Row | DataError]]:
    """The rows of a published CSV file that has ``columns``, or what is wrong with one, each with "FILE:LINE"."""
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
