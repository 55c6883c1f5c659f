"""The two kinds of metadata file of a prepared dataset, dataset.json and metadata.jsonl: parsed and checked.

Nothing of a file is trusted before it was checked: not the paths it names, nor the form of its labels. Lines are
taken many at a time (metadata_blocks.py); where anything in them is unusual, each is looked at by itself. Not for: the
folder as a whole and its pixels (prepared.py), nor writing (prepared_writer.py).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import reprlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cml.data.columns import Gathered, Items, may_repeat
from cml.data.label_form import LabelForm
from cml.data.listed_files import ListedFiles
from cml.data.metadata_blocks import Block, BlockParser
from cml.storage.atomic import open_regular
from cml.storage.strict_json import parse_json

ROLES = ("train", "query", "gallery")
FOLDERS = {"train": "train", "query": "test", "gallery": "test"}  # role to folder
INFO = "dataset.json"
METADATA = "metadata.jsonl"
FIXED_COLUMNS = ("file_name", "item_id", "role")
FILE_COLUMN = "_file_name"  # a column that ends like this names a further file, e.g. the mask in layout_file_name

_TEXTS = ("name", "task", "label_column", "label_unit", "frame", "source", "licence")  # in the order of DatasetInfo
_NEVER_EMPTY = ("name", "task", "label_column")
_BLOCK = 1 << 20  # bytes of metadata.jsonl read at a time
_LONGEST_LINE = 64 << 20  # bytes; what is longer reads as several lines, none of them JSON
Report = Callable[[str], object]


@dataclass(frozen=True)
class DatasetInfo:
    """What ``dataset.json`` says.

    Attributes:
        name: Short name, e.g. "donkeycar".
        task: Name of the task whose recipe fits: "pose", "value", ..
        label_column: The column of metadata.jsonl that holds the label: "keypoints", "value", ..
        label_unit: Unit of the label: "px", "steering angle", ..
        frame: Coordinate frame of the label in words, "" if it has none.
        source: Where the items come from.
        licence: Their licence, or that none is stated.
        details: What the task needs beside: {"joints": ["r_ankle", ..], "image_size": [288, 288]}. {"gallery":
            "queries"} says that each query is searched among all other queries and that there is no gallery beside.
        made_with: Settings and source fingerprint of the preparation; {} if made by hand.
        counts: Items by role.
    """

    name: str
    task: str
    label_column: str
    label_unit: str
    frame: str
    source: str
    licence: str
    details: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def queries_are_gallery(self) -> bool:
        """Whether the queries are searched among themselves, each one left out of its own ranking."""
        return self.details.get("gallery") == "queries"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that the dataset has items of."""
        return ROLES[:2] if self.queries_are_gallery else ROLES


class Metadata(NamedTuple):
    """What the metadata files of a dataset say.

    Attributes:
        items: Those of train/ and those of test/; roles are numbers, places in ``ROLES``. Labels in a column that names
            files are paths.
        others: The files of further columns and their lines: (path, "FILE:LINE").
        fingerprint: sha256 over dataset.json and both metadata.jsonl.
    """

    items: tuple[Items, ...]
    others: list[tuple[Path, str]]
    fingerprint: str


def read_metadata(folder: Path, report: Report) -> tuple[DatasetInfo | None, Metadata]:
    """Read and check all metadata of a dataset.

    Args:
        folder: The dataset.
        report: Told every fault, "FILE:LINE: what, rule, value". It may raise to stop at the first.

    Returns:
        The info, None if dataset.json cannot be used, and what the metadata says. After a report, items without an
        image are left out, and labels may be of any form.
    """
    path = folder / INFO
    try:
        with open_regular(path) as file:
            raw = file.read()
        info = _info(_parse(raw))
    except OSError as error:
        report(f"{path} cannot be read ({error.strerror}); a prepared dataset has one, made by cml prepare.")
        return None, Metadata((), [], "")
    except ValueError as error:
        report(f"{path}: {error}.")
        return None, Metadata((), [], "")
    digests = [hashlib.sha256(raw)]
    reader = _Reader(folder, info.label_column, report)
    with _no_collection():
        for name in dict.fromkeys(FOLDERS.values()):
            digests.append(hashlib.sha256())
            reader.read(name, digests[-1].update)
        reader.finish()
    counts = dict(zip(ROLES, reader.counts, strict=True))
    for role in ROLES:
        if not reader.lost and counts[role] != info.counts.get(role):
            report(f"{path}: counts {info.counts.get(role)} {role} items, but {METADATA} lists {counts[role]}.")
        if not reader.lost and not counts[role] and role in info.roles:
            report(f"{folder} has no {role} items; a dataset needs items of every role: {', '.join(info.roles)}.")
        if counts[role] and role not in info.roles:
            report(f"{path}: details.gallery is 'queries', but {METADATA} lists {counts[role]} {role} items.")
    fingerprint = hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()
    return info, Metadata(reader.items, reader.others, fingerprint)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Hold off the garbage collector: among millions of new lists it finds nothing and takes most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Reader:
    """Reads the metadata.jsonl files of one dataset and remembers what must be unique across them.

    As long as there is no fault it lets all items pass and compares the hashes of ids and images at the end. Only where
    two are equal, or before a fault is told, does it look back and compare the ids and images themselves.
    """

    def __init__(self, folder: Path, label_column: str, report: Report) -> None:
        self.others: list[tuple[Path, str]] = []
        self.counts = [0] * len(ROLES)
        self.lost = False  # True once a line could not become an item: counts mean nothing then
        self._folder = folder
        self._label_column = label_column
        self._report = report
        self._form = LabelForm()
        self._gathered: list[Gathered] = []  # one a metadata.jsonl
        self._first: defaultdict[str, dict[str, str]] | None = None  # by kind, names to their line; once it looked back
        self._of_line: list[tuple[str, str, str]] = []  # what the line being read has of them: kind, name, line

    @property
    def items(self) -> tuple[Items, ...]:
        """The items of each metadata.jsonl."""
        return tuple(gathered.items() for gathered in self._gathered)

    def read(self, name: str, hashed: Callable[[bytes], object]) -> None:
        """Read train/ or test/; every line goes through ``hashed`` first."""
        path = self._folder / name / METADATA
        files = ListedFiles(self._folder, name)
        roles = tuple(role for role in ROLES if FOLDERS[role] == name)
        parser = None if self._label_column.endswith(FILE_COLUMN) else BlockParser(roles, self._label_column)
        self._gathered.append(Gathered(path.parent))
        number = 1
        try:
            with open_regular(path) as file:
                while block := file.read(_BLOCK) + file.readline(_LONGEST_LINE):
                    hashed(block)
                    parsed = None if parser is None or self._first is not None else parser.parse(block, self._form)
                    if parsed is not None and files.has_all(parsed.names):
                        self._take(parsed, number)
                        number += len(parsed.ids)
                        continue
                    for line in io.BytesIO(block):
                        self._line(line, number, name, files)
                        number += 1
        except OSError as error:
            self.lost = True
            self._fault(f"{path} cannot be read ({error.strerror}); it should list the items of {name}/.")

    def finish(self) -> None:
        """Tell which ids and images came twice; called after all was read."""
        if self._first is None and may_repeat(self._gathered):
            self._look_back()

    def _take(self, block: Block, first: int) -> None:
        """Take the items of the lines from ``first`` on, in which there is no fault."""
        roles = list(map(ROLES.index, block.roles))
        for number in range(len(ROLES)):
            self.counts[number] += roles.count(number)
        lines = np.arange(first, first + len(roles))
        self._gathered[-1].extend(lines, roles, block.ids, block.names, block.labels)

    def _line(self, line: bytes, number: int, name: str, files: ListedFiles) -> None:
        where = f"{self._folder / name / METADATA}:{number}"
        try:
            entry = _parse(line)
            role = entry.get("role")
            if not isinstance(role, str) or FOLDERS.get(role) != name:
                roles = " or ".join(role for role in ROLES if FOLDERS[role] == name)
                raise ValueError(f"role should be {roles} in {name}/, but is {reprlib.repr(role)}")
        except ValueError as error:
            self.lost = True
            self._fault(f"{where}: {error}.")
            return
        self.counts[ROLES.index(role)] += 1
        item_id, label = entry.get("item_id"), entry.get(self._label_column)
        if not isinstance(item_id, str) or not item_id:
            self._fault(f"{where}: item_id should be a text, but is {reprlib.repr(item_id)}.")
            item_id = ""
        else:
            self._once("item_id", item_id, where)
        if self._label_column not in entry:
            self._fault(f"{where}: has no column {self._label_column!r}, the label; it has {', '.join(entry)}.")
        elif not self._label_column.endswith(FILE_COLUMN) and (fault := self._form.fault(label)) is not None:
            self._fault(f"{where}: {self._label_column} {fault}.")
        image = ""
        for column in ("file_name", *(column for column in entry if column.endswith(FILE_COLUMN))):
            try:
                found = files.find(entry.get(column))
            except ValueError as error:
                self._fault(f"{where}: {column} {reprlib.repr(entry.get(column))} {error}.")
                continue
            path = self._folder / name / found
            if column == "file_name":  # a mask may belong to several images
                image = found
                self._once(name, image, where)
            elif column == self._label_column:
                label = path
            else:
                self.others.append((path, where))
        self._gathered[-1].add(number, ROLES.index(role), item_id, image, label)
        self._of_line.clear()

    def _once(self, kind: str, name: str, where: str) -> None:
        """``name`` may stand in one line: an id if ``kind`` is item_id, else an image in the folder ``kind``."""
        if self._first is None:
            self._of_line.append((kind, name, where))
            return
        first = self._first[kind].setdefault(name, where)
        if first is not where:
            what = f"item_id {name!r}" if kind == "item_id" else f"image {str(self._folder / kind / name)!r}"
            self._report(f"{where}: {what} is listed already in {first}; an item has one line, one role.")

    def _fault(self, what: str) -> None:
        self._look_back()
        self._report(what)

    def _look_back(self) -> None:
        """Tell what came twice so far, and remember ids and images themselves from here on."""
        if self._first is not None:
            return
        self._first = defaultdict(dict)
        for items in self.items:  # there was no fault yet: none of them lacks anything
            for item_id, image, where in items.listed(METADATA):
                self._once("item_id", item_id, where)
                self._once(items.folder.name, image, where)
        for kind, name, where in self._of_line:
            self._once(kind, name, where)


def _parse(raw: bytes) -> dict[str, Any]:
    """Read one JSON object; ValueError says what is wrong with it."""
    value = parse_json(raw)
    if not isinstance(value, dict):
        raise ValueError(f"should be one JSON object {{..}}, but is {reprlib.repr(value)}")
    return value


def _info(value: dict[str, Any]) -> DatasetInfo:
    for name in _TEXTS:
        text = value.get(name)
        if not isinstance(text, str) or (name in _NEVER_EMPTY and not text):
            raise ValueError(f"{name} should be a text, but is {reprlib.repr(text)}")
    if value["label_column"] in FIXED_COLUMNS:
        raise ValueError(f"label_column cannot be {value['label_column']!r}, a column with another meaning")
    rest = {name: value.get(name, {}) for name in ("details", "made_with", "counts")}
    for name, content in rest.items():
        if not isinstance(content, dict):
            raise ValueError(f"{name} should be an object {{..}}, but is {reprlib.repr(content)}")
    return DatasetInfo(*(value[name] for name in _TEXTS), **rest)
