"""What the datasets of class labels share: their label column, the protocol that dataset.json states, their pictures.

A published protocol is three things: which classes train, whether every test image is searched among all the others or
queries have a gallery of their own, and the K of Recall@K. Not for: the files of any one dataset.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.data_prep.shrink import Shrink
from cml.data_prep.source import input_folders, made_with, text_lines
from cml.errors import DataError, UserError
from cml.storage.safe_paths import file_inside


@dataclass(frozen=True)
class Protocol:
    """How a dataset of classes is evaluated.

    Attributes:
        recall_ks: The published K of Recall@K.
        own_gallery: True if queries have a gallery of their own; False if every test image is a query that is searched
            among all other test images.
    """

    recall_ks: Sequence[int]
    own_gallery: bool = False

    def details(self) -> dict[str, Any]:
        """What dataset.json says of it."""
        itself = {} if self.own_gallery else {"gallery": "queries"}
        return {"recall_ks": list(self.recall_ks), **itself}


def class_info(
    protocol: Protocol, made_with: Mapping[str, Any], *, name: str, source: str, licence: str
) -> DatasetInfo:
    """What dataset.json says of a dataset of classes."""
    return DatasetInfo(
        name=name,
        task="classes",
        label_column="class",
        label_unit="",
        frame="",
        source=source,
        licence=licence,
        details=protocol.details(),
        made_with=made_with,
    )


class Listed(NamedTuple):
    """A line of a list of images: where it stands ("FILE:LINE"), the image's path, its class and its role."""

    where: str
    name: str
    label: str
    role: str


@dataclass(frozen=True)
class ClassSource:
    """A folder with lists of images and their classes. A source of its own names the files and reads the lists."""

    source: Path
    """The folder of the dataset."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has so many pixels; none keeps the files."""

    protocol: ClassVar[Protocol]
    name: ClassVar[str]
    published: ClassVar[str]
    licence: ClassVar[str]
    images: ClassVar[str] = ""
    """Where below the folder of ``_files`` all images lie."""

    def __post_init__(self) -> None:
        if self.image_size is not None and self.image_size < 16:
            raise UserError(f"The image_size should be at least 16 pixels. Got {self.image_size} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        lists, folder = self._files()
        origin = made_with(self, revision=1, files=lists, images=folder / self.images)
        if (done := already_prepared(out, origin)) is not None:
            return done
        seen: dict[str, str] = {}
        items = [self._item(folder, one, seen) for one in self._listed(lists)]
        present = {item.role for item in items if isinstance(item, Item)}
        for role in ("train", "query", "gallery") if self.protocol.own_gallery else ("train", "query"):
            if role not in present:
                raise DataError(f"{' and '.join(map(str, lists))} list no {role} images.")
        info = class_info(self.protocol, origin, name=self.name, source=self.published, licence=self.licence)
        return write_dataset(out, info, items, skip_bad=skip_bad, within=input_folders(self))

    def _files(self) -> tuple[list[Path], Path]:
        """The lists, and the folder that their paths are relative to."""
        raise NotImplementedError

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        """The lines of the lists in order, and what is wrong with one."""
        raise NotImplementedError

    def _item(self, folder: Path, one: Listed | DataError, seen: dict[str, str]) -> Item | DataError:
        if isinstance(one, DataError):
            return one
        try:
            path = file_inside(folder, one.name, one.where)
            if (first := seen.setdefault(one.name, one.where)) is not one.where:
                raise DataError(f"{one.where}: {one.name!r} is already in {first}; an image has one line.")
        except DataError as error:
            return error
        picture = Shrink(self.image_size, sys.maxsize).picture(path)
        return Item(one.name, one.role, picture, one.label, where=one.where)


def split_lines(path: Path) -> list[tuple[str, list[str]]]:
    """The lines of a text file, each with "FILE:LINE", cut at white space.

    Raises:
        DataError: the file cannot be read, is empty or not UTF-8.
    """
    if not (lines := [(where, line.split()) for where, line in text_lines(path)]):
        raise DataError(f"{path} is empty.")
    return lines
