"""Reading and checking dataset.json and metadata.jsonl: many lines at once, or one by one to describe the faults.

There are two readers because the one that describes faults takes 5 to 10 times as long as the one that only accepts
valid lines (19 and 1.9 us an item of numbers, 48 and 9 of poses, 20 and 4 of captions),
and datasets have millions of items. A typed msgspec decoder cannot stand in for both: it takes the last of two equal
keys ("role twice" in tests/data/test_prepared.py) and drops the columns that name other files ("second file").
"""

import contextlib
import gc
import hashlib
import itertools
import os
import reprlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from cml.data.columns import ItemCollector, Items, may_repeat
from cml.data.dataset_info import (
    FILE_COLUMN,
    FOLDERS,
    INFO,
    METADATA,
    ROLES,
    VECTORS,
    DatasetInfo,
    parse_dataset_info,
    parse_object,
)
from cml.data.label_form import LabelForm
from cml.data.vector_files import read_vectors
from cml.storage.regular_file import open_regular
from cml.storage.safe_paths import is_inside, relative_name

_NUMBERS = {  # by folder, its roles and their indices in ROLES
    folder: {role: number for number, role in enumerate(ROLES) if FOLDERS[role] == folder}
    for folder in dict.fromkeys(FOLDERS.values())
}
_BLOCK = 1 << 19  # bytes of metadata.jsonl read at a time
_LONGEST_LINE = 64 << 20  # bytes; a longer line reads as several, none of them JSON
Report = Callable[[str], object]


class Metadata(NamedTuple):
    """The content of a dataset's metadata files."""

    # the items of train/ and test/; roles are indices in ROLES, labels that name files are paths
    items: tuple[Items, ...]
    others: list[tuple[Path, str]]  # the files in other columns and their lines: (path, "FILE:LINE")
    fingerprint: str  # the SHA-256 over dataset.json, both metadata.jsonl and the files of vectors, if any
    digests: Mapping[str, str]  # the SHA-256 of each metadata.jsonl and file of vectors, by its path in the dataset


def read_metadata(folder: Path, report: Report) -> tuple[DatasetInfo | None, Metadata]:
    """Read and check all metadata of a dataset.

    Returns the description of the dataset, None if dataset.json cannot be used; and the metadata, in which labels may
    have any form after a report.
    """
    path = folder / INFO
    try:
        with open_regular(path) as file:
            raw = file.read()
        info = parse_dataset_info(parse_object(raw))
    except OSError as error:
        report(f"{path} cannot be read ({error.strerror}); a prepared dataset has one, made by cml prepare.")
        return None, Metadata((), [], "", {})
    except ValueError as error:
        report(f"{path}: {error}.")
        return None, Metadata((), [], "", {})
    has_images = info.inputs.kind == "images"
    collects, reader = gc.isenabled(), _Reader(folder, info.label_column, has_images=has_images)
    gc.disable()  # the garbage collector would take most of the time on millions of new lists
    try:
        reader.read()
        if may_repeat(reader.gathered):
            raise _Unusual
    except _Unusual:
        reader = _LineReader(folder, info.label_column, report, has_images=has_images)
        reader.read()
    finally:
        if collects:
            gc.enable()
    items = tuple(gathered.items() for gathered in reader.gathered)
    counts = {role: sum(int((part.roles == number).sum()) for part in items) for number, role in enumerate(ROLES)}
    for role in ROLES:
        if not reader.lost and counts[role] != info.counts.get(role):
            report(f"{path}: counts {info.counts.get(role)} {role} items, but {METADATA} lists {counts[role]}.")
        if not reader.lost and not counts[role] and role in info.roles:
            report(f"{folder} has no {role} items; a dataset needs items of every role: {', '.join(info.roles)}.")
        if counts[role] and role not in info.roles:
            report(f"{path}: details.gallery is 'queries', but {METADATA} lists {counts[role]} {role} items.")
    if info.inputs.kind == "vectors":
        items = tuple(_with_vectors(part, info, reader, report) for part in items)
    whole = hashlib.sha256(raw).digest() + b"".join(reader.digests.values())
    digests = {name: digest.hex() for name, digest in reader.digests.items()}
    return info, Metadata(items, reader.others, hashlib.sha256(whole).hexdigest(), digests)


def _with_vectors(items: Items, info: DatasetInfo, reader: "_Reader", report: Report) -> Items:
    """The items of a folder with their vectors, whose digest is added to those of the reader."""
    count = None if reader.lost else len(items.ids)  # without lines that could not be read, counts mean nothing
    vectors, digest = read_vectors(
        items.folder / VECTORS, info.inputs, count, items.ids, may_miss_numbers=info.may_miss_numbers, report=report
    )
    reader.digests[f"{items.folder.name}/{VECTORS}"] = digest
    return replace(items, vectors=vectors)


class _Unusual(Exception):  # the lines have to be checked one by one
    pass


class _Reader:
    """Reads many lines at once and accepts only valid ones; others, such as duplicates, are ``_Unusual``."""

    def __init__(self, folder: Path, label_column: str, *, has_images: bool = True) -> None:
        self.gathered: list[ItemCollector] = []  # one a metadata.jsonl
        self.others: list[tuple[Path, str]] = []
        self.digests: dict[str, bytes] = {}  # by path
        self.lost = False  # True once a line could not become an item, so that counts mean nothing
        self._folder, self._label_column, self._form = folder, label_column, LabelForm()
        self._decoder = msgspec.json.Decoder(dict[str, Any])
        self._columns = "role", "item_id", label_column
        self._has_images = has_images

    def read(self) -> None:
        """Read train/ and test/."""
        for self._name in _NUMBERS:
            path = self._folder / self._name / METADATA
            self.gathered.append(ItemCollector(path.parent))
            self._files = ListedFiles(self._folder, self._name)
            digest, number = hashlib.sha256(), 1
            try:
                with open_regular(path) as file:
                    while block := file.read(_BLOCK) + file.readline(_LONGEST_LINE):
                        digest.update(block)
                        self._take(block, number)
                        number += block.count(b"\n")
            except OSError as error:
                self._lose(f"{path} cannot be read ({error.strerror}); it should list the items of {self._name}/.")
            self.digests[f"{self._name}/{METADATA}"] = digest.digest()

    def _take(self, block: bytes, first: int) -> None:
        try:
            entries = list(map(self._decoder.decode, _lines(block)))
            roles, ids, labels = (list(map(itemgetter(key), entries)) for key in self._columns)
            roles = list(map(_NUMBERS[self._name].__getitem__, roles))
            # an item that is a vector may have a picture
            pictured = entries if self._has_images else [entry for entry in entries if "file_name" in entry]
            names = [entry["file_name"] for entry in pictured]
            counts = {**dict.fromkeys(self._columns, len(entries)), "file_name": len(pictured)}
            if any(block.count(b'"%b"' % column.encode()) != count for column, count in counts.items()):
                list(map(parse_object, _lines(block)))  # a column may be named twice, which msgspec does not notice
        except (KeyError, TypeError, ValueError, RecursionError, msgspec.MsgspecError):
            raise _Unusual from None
        columns = [column for column in set[str]().union(*entries) if column.endswith(FILE_COLUMN)]
        named: list[list[Any]] = [names, *([entry.get(column) for entry in entries] for column in columns)]
        if set(map(type, ids)) != {str} or not all(ids) or not all(self._files.has_all(column) for column in named):
            raise _Unusual
        if self._label_column in columns:
            packed: Any = [self._folder / self._name / label for label in labels]
        else:
            booleans = isinstance(labels[0], list) and (b"true" in block or b"false" in block)
            if (packed := self._form.pack(labels, booleans=booleans)) is None:
                raise _Unusual
        if len(names) < len(entries):
            names = [entry.get("file_name", "") for entry in entries]
        self.gathered[-1].extend(np.arange(first, first + len(entries)), roles, ids, names, packed)
        if others := set(columns) - {self._label_column}:
            for number, entry in enumerate(entries, first):
                where = self._where(self._name, number)
                self.others += [(self._folder / self._name / entry[key], where) for key in entry if key in others]

    def _where(self, name: str, number: int) -> str:
        return f"{self._folder / name / METADATA}:{number}"

    def _lose(self, fault: str) -> None:
        raise _Unusual


class _LineReader(_Reader):
    """Reads line by line and remembers every id and image, to describe each fault."""

    def __init__(self, folder: Path, label_column: str, report: Report, *, has_images: bool = True) -> None:
        super().__init__(folder, label_column, has_images=has_images)
        self._report = report
        self._seen: defaultdict[str, dict[str, tuple[str, int]]] = defaultdict(dict)  # by kind, names to their line

    def _take(self, block: bytes, first: int) -> None:
        items = [self._item(line, number) for number, line in enumerate(_lines(block), first)]
        whole = [item for item in items if item is not None]
        if whole:
            self.gathered[-1].extend(*map(list, zip(*whole, strict=True)))

    def _item(self, line: bytes, number: int) -> tuple[int, int, str, str, Any] | None:
        """Line number, role, id, image and label; None if the line cannot become an item."""
        where = self._where(self._name, number)
        try:
            entry = parse_object(line)
            role = entry.get("role")
            if not isinstance(role, str) or role not in _NUMBERS[self._name]:
                raise ValueError(
                    f"role should be {' or '.join(_NUMBERS[self._name])} in {self._name}/, but is {reprlib.repr(role)}"
                )
        except ValueError as error:
            self._lose(f"{where}: {error}.")
            return None
        item_id, label = entry.get("item_id"), entry.get(self._label_column)
        if not isinstance(item_id, str) or not item_id:
            self._report(f"{where}: item_id should be a text, but is {reprlib.repr(item_id)}.")
            item_id = ""
        else:
            self._once("item_id", item_id, number)
        if self._label_column not in entry:
            self._report(f"{where}: has no column {self._label_column!r}, the label; it has {', '.join(entry)}.")
        elif not self._label_column.endswith(FILE_COLUMN) and (fault := self._form.fault(label)) is not None:
            self._report(f"{where}: {self._label_column} {fault}.")
        image = ""
        named = ["file_name"] if self._has_images or "file_name" in entry else []
        for column in (*named, *(column for column in entry if column.endswith(FILE_COLUMN))):
            try:
                name = self._files.find(entry.get(column))
            except ValueError as error:
                self._report(f"{where}: {column} {reprlib.repr(entry.get(column))} {error}.")
                continue
            path = self._folder / self._name / name
            if column == "file_name":  # a mask may belong to several images
                image = name
                self._once(self._name, image, number)
            elif column == self._label_column:
                label = path
            else:
                self.others.append((path, where))
        return number, _NUMBERS[self._name][role], item_id, image, label

    def _once(self, kind: str, name: str, number: int) -> None:
        """Check that only one line has ``name``: an id if ``kind`` is item_id, else an image in the folder ``kind``."""
        here = self._name, number
        if (first := self._seen[kind].setdefault(name, here)) is not here:
            entry = f"item_id {name!r}" if kind == "item_id" else f"image {str(self._folder / kind / name)!r}"
            already = f"is listed already in {self._where(*first)}; an item has one line, one role."
            self._report(f"{self._where(*here)}: {entry} {already}")

    def _lose(self, fault: str) -> None:
        self.lost = True
        self._report(fault)


def _lines(block: bytes) -> list[bytes]:
    lines = block.split(b"\n")
    return lines if lines[-1] else lines[:-1]


_ENTRIES = 4096  # of a folder, read at a time


class ListedFiles:
    """Finds the files in file_name columns by listing each subfolder once, since 10^5 single queries are slow."""

    def __init__(
        self,
        dataset: Path,
        name: str,  # the folder in it to which names are relative: "train" or "test"
    ) -> None:
        self._dataset, self._name, self._root = dataset.resolve(), name, dataset / name
        self._listed: dict[str, bool] = {}  # subfolders, and whether they could be read
        # the files in them, by their path below the root
        self._plain: set[str] = set()
        self._links: set[str] = set()  # those that may lie elsewhere

    def find(self, value: object) -> str:
        """Find a file."""
        name = relative_name(value, f"{self._name}/")
        parent = name.rpartition("/")[0]
        self._list(parent)
        path = self._root / name
        if name in self._links:
            if not is_inside(path, self._dataset):
                raise ValueError(f"leads out of the dataset, to {path.resolve()}")
        elif name not in self._plain and not (self._listed[parent] and path.is_file() and not path.is_symlink()):
            raise ValueError(f"names a missing file: there is no {path}")
        return name

    def has_all(
        self, names: Sequence[Any]
    ) -> bool:  # whether all are existing files in their normal form; if not, ``find`` says of each what is wrong
        """Check many names at once."""
        try:
            return self._plain.issuperset(names) or all(
                name in self._plain or self.find(name) == name for name in names
            )
        except (TypeError, ValueError):  # TypeError: a list
            return False

    def _list(self, parent: str) -> None:
        if parent in self._listed:
            return
        folder, prefix = self._root / parent, f"{parent}/" if parent else ""
        try:
            outside = not is_inside(folder, self._dataset)
            with contextlib.ExitStack() as held:
                place: int | Path = folder
                if os.scandir in os.supports_fd:  # entries are read a fifth faster than by path, which each would get
                    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    held.callback(os.close, place)
                entries = held.enter_context(os.scandir(place))
                while some := list(itertools.islice(entries, _ENTRIES)):
                    files = list(filter(os.DirEntry.is_file, some))
                    if outside or any(map(os.DirEntry.is_symlink, files)):
                        self._links.update(prefix + entry.name for entry in files if outside or entry.is_symlink())
                        files = [entry for entry in files if not outside and not entry.is_symlink()]
                    self._plain.update([prefix + entry.name for entry in files])
            self._listed[parent] = True
        except (OSError, ValueError):  # ValueError: a character that no path may contain
            self._listed[parent] = False
