"""The base class of sources that list their images, each with one label."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cml.data.encode_image import Picture
from cml.data.prepared import ROLES
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.provenance import record_provenance
from cml.data_prep.published_table import read_published_rows, read_within
from cml.data_prep.row_errors import read_each
from cml.data_prep.row_files import Row
from cml.data_prep.shrink import Shrink
from cml.data_prep.unique_ids import note_unique
from cml.errors import DataError
from cml.storage.safe_paths import file_inside


class Listed(NamedTuple):
    """A line of a list: where it stands ("FILE:LINE"), the image's path, label, role ("": none) and further columns."""

    where: str
    name: str
    label: Any
    role: str
    extra: Mapping[str, Any] = {}


@dataclass(frozen=True)
class ListedSource(DatasetSource):
    """A folder with lists of images and labels by settings; by default CSV files of numbers, and no gallery."""

    source: Path
    """Folder of the raw dataset."""
    image_size: int | None = 256
    """Shrink larger images so that their shorter side has this many pixels; none keeps the files unchanged."""

    task = "value"
    lists: ClassVar[Iterable[str]] = ()  # names of the files
    images: ClassVar[str] = ""  # where below the folder of ``_files`` all images lie
    details: ClassVar[Mapping[str, Any]] = {"gallery": "queries"}
    columns: ClassVar[Sequence[str]] = ()  # that a list has; path is that of the image
    numbers: ClassVar[Sequence[tuple[str, float, float]]] = ()  # columns of the label, the lowest, the highest
    roles: ClassVar[tuple[str, Mapping[str, str]]] = ("", {})  # the column of the split, and the roles that it means

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        lists, folder = self._files()
        return record_provenance(self, revision=1, files=lists, images=folder / self.images)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        lists, folder = self._files()
        seen: dict[str, str] = {}
        lines = (("", line) for line in self._read_lists(lists) if isinstance(line, DataError) or line.role)
        items = list(read_each(lines, lambda _, line: self._item(folder, line, seen)))
        item_roles = [item.role for item in items if isinstance(item, Item)]
        roles = ROLES[:2] if self.details.get("gallery") == "queries" else ROLES
        for role in roles if skip_bad or len(item_roles) == len(items) else ():  # a bad item is the error itself
            if role not in item_roles:
                raise DataError(f"{' and '.join(map(str, lists[:3]))} list no {role} images.")
        return Content(items, self.details, input_folders=[folder])

    def _files(self) -> tuple[list[Path], Path]:
        """The lists, and the folder that their paths are relative to."""
        return [self.source / name for name in self.lists], self.source

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        """The lines of the lists in order, and what is wrong with one."""
        for path in lists:
            yield from read_each(self._read_rows(path), partial(self._line, path))

    def _read_rows(self, path: Path) -> Iterator[tuple[str, Row | DataError]]:
        return read_published_rows(path, self.columns)

    def _line(self, path: Path, where: str, row: Row) -> Listed:
        """What a row of a list says."""
        numbers = [read_within(row[column], column, where, low, high) for column, low, high in self.numbers]
        return Listed(where, row["path"], numbers[0] if len(numbers) == 1 else numbers, self._role(row, where))

    def _role(self, row: Row, where: str) -> str:
        column, roles = self.roles
        if row[column] not in roles:
            raise DataError(f"{where}: {column} should be one of {', '.join(roles)}. Got {row[column]!r}.")
        return roles[row[column]]

    def _item(self, folder: Path, line: Listed, seen: dict[str, str]) -> Item:
        path = file_inside(folder, line.name, line.where)
        note_unique(seen, str(path), line.where, repr(line.name), "each image must have one line")
        return Item(line.name, line.role, self._picture(path, line), line.label, extra=line.extra, where=line.where)

    def _picture(self, path: Path, line: Listed) -> Picture:
        return Shrink(self.image_size).picture(path)
