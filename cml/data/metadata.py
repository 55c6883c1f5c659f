"""The two kinds of metadata file of a prepared dataset, dataset.json and metadata.jsonl: parsed and checked.

Nothing of a file is trusted before it was checked: not the paths it names, nor the form of its labels. Lines are
taken many at a time (metadata_blocks.py); where anything in them is unusual, each is looked at by itself. Not for: the
folder as a whole and its pixels (prepared.py), nor writing (prepared_writer.py).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cml.data.columns import Gathered, Items
from cml.data.label_form import LabelForm
from cml.data.listed_files import ListedFiles
from cml.data.metadata_blocks import Block, BlockParser
from cml.files import open_regular
from cml.json_text import parse_json

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
    counts = dict(zip(ROLES, reader.counts, strict=True))
    for role in ROLES:
        if not reader.lost and counts[role] != info.counts.get(role):
            report(f"{path}: counts {info.counts.get(role)} {role} items, but {METADATA} lists {counts[role]}.")
        if not reader.lost and not counts[role] and role in info.roles:
            report(f"{folder} has no {role} items; a dataset needs items of every role: {', '.join(info.roles)}.")
        if counts[role] and role not in info.roles:
            report(f"{path}: details.gallery is 'queries', but {METADATA} lists {counts[role]} {role} items.")
    fingerprint = hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()
    return info, Metadata(tuple(reader.items), reader.others, fingerprint)


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
    """Reads the metadata.jsonl files of one dataset and remembers what must be unique across them."""

    def __init__(self, folder: Path, label_column: str, report: Report) -> None:
        self.items: list[Items] = []
        self.others: list[tuple[Path, str]] = []
        self.counts = [0] * len(ROLES)
        self.lost = False  # True once a line could not become an item: counts mean nothing then
        self._folder = folder
        self._label_column = label_column
        self._report = report
        self._form = LabelForm()
        self._ids: set[str] = set()
        self._first: dict[tuple[str, str], str] | None = None  # ids and images to their line, once one comes twice
        self._gathered = Gathered(folder)  # of the metadata.jsonl being read
        self._last: tuple[tuple[str, str], str] | None = None  # the id of the line being read, and the line

    def read(self, name: str, hashed: Callable[[bytes], object]) -> None:
        """Read train/ or test/; every line goes through ``hashed`` first."""
        path = self._folder / name / METADATA
        files = ListedFiles(self._folder, name)
        roles = tuple(role for role in ROLES if FOLDERS[role] == name)
        parser = None if self._label_column.endswith(FILE_COLUMN) else BlockParser(roles, self._label_column)
        self._gathered, number = Gathered(self._folder / name), 1
        try:
            with open_regular(path) as file:
                while block := file.read(_BLOCK) + file.readline(_LONGEST_LINE):
                    hashed(block)
                    lines = block.removesuffix(b"\n").split(b"\n")
                    parsed = None if parser is None else parser.parse(block, lines, self._form)
                    if parsed is None or not self._take(parsed, number, files):
                        lines = [line + b"\n" for line in lines[:-1]] + [block[block.rfind(b"\n", 0, -1) + 1 :]]
                        for place, line in enumerate(lines, start=number):
                            self._line(line, place, name, files)
                    number += len(lines)
        except OSError as error:
            self.lost = True
            self._report(f"{path} cannot be read ({error.strerror}); it should list the items of {name}/.")
        self.items.append(self._gathered.items())

    def _take(self, block: Block, first: int, files: ListedFiles) -> bool:
        """Take the items of the lines from ``first`` on; False, and none is taken, if they need a closer look."""
        if self._first is not None or not files.take_all(block.names):
            return False
        before = len(self._ids)
        self._ids.update(block.ids)
        if len(self._ids) != before + len(block.ids):  # one comes twice
            files.give_back(block.names)
            self._ids = {item_id for items in (*self.items, self._gathered.items()) for item_id in items.ids.tolist()}
            return False
        for number, role in enumerate(ROLES):
            self.counts[number] += block.roles.count(role)
        roles = list(map(ROLES.index, block.roles))
        self._gathered.extend(range(first, first + len(roles)), roles, block.ids, block.names, block.labels)
        return True

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
            self._report(f"{where}: {error}.")
            return
        self.counts[ROLES.index(role)] += 1
        item_id, label = entry.get("item_id"), entry.get(self._label_column)
        if not isinstance(item_id, str) or not item_id:
            self._report(f"{where}: item_id should be a text, but is {reprlib.repr(item_id)}.")
            item_id = ""
        else:
            self._once("item_id", item_id, where, item_id not in self._ids)
            self._ids.add(item_id)
        self._last = ("item_id", item_id), where
        if self._label_column not in entry:
            self._report(f"{where}: has no column {self._label_column!r}, the label; it has {', '.join(entry)}.")
        elif not self._label_column.endswith(FILE_COLUMN) and (fault := self._form.fault(label)) is not None:
            self._report(f"{where}: {self._label_column} {fault}.")
        image = ""
        for column in ("file_name", *(column for column in entry if column.endswith(FILE_COLUMN))):
            try:
                found = files.find(entry.get(column))
            except ValueError as error:
                self._report(f"{where}: {column} {reprlib.repr(entry.get(column))} {error}.")
                continue
            path = self._folder / name / found
            if column == "file_name":  # a mask may belong to several images
                image = found
                self._once("image", str(path), where, files.take(found))
            elif column == self._label_column:
                label = path
            else:
                self.others.append((path, where))
        self._gathered.add(number, ROLES.index(role), item_id, image, label)

    def _once(self, kind: str, name: str, where: str, is_new: bool) -> None:
        if self._first is None:
            if is_new:
                return
            self._first = dict(self._listed())
        first = self._first.setdefault((kind, name), where)
        if first is not where:
            self._report(f"{where}: {kind} {name!r} is listed already in {first}; an item has one line, one role.")

    def _listed(self) -> Iterator[tuple[tuple[str, str], str]]:
        """The ids and images of all items so far, the later lines first: a dict made of them keeps the earlier ones."""
        if self._last is not None:
            yield self._last
        for items in (self._gathered.items(), *reversed(self.items)):
            columns = (column[::-1].tolist() for column in (items.lines, items.ids, items.names))
            for line, item_id, name in zip(*columns, strict=True):
                where = f"{items.folder / METADATA}:{line}"
                yield ("image", str(items.folder / name)), where
                yield ("item_id", item_id), where


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
