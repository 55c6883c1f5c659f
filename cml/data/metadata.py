"""The two kinds of metadata file of a prepared dataset, dataset.json and metadata.jsonl: parsed and checked.

Nothing of a file is trusted before it was checked: not the paths it names, nor the form of its labels. Not for: the
folder as a whole and its pixels (prepared.py), nor writing (prepared_writer.py).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import reprlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cml.data.inside import is_inside, relative_name
from cml.data.label_form import LabelForm
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


class Row(NamedTuple):
    """One line of metadata.jsonl."""

    where: str  # "FILE:LINE"
    role: str
    item_id: Any  # a text, unless report was told otherwise
    label: Any  # as the JSON holds it; of a column that names files the file
    files: list[Path]  # the image, then what other columns name; without those that were not found


def read_metadata(folder: Path, report: Report) -> tuple[DatasetInfo | None, list[Row], str]:
    """Read and check all metadata of a dataset.

    Args:
        folder: The dataset.
        report: Told every fault, "FILE:LINE: what, rule, value". It may raise to stop at the first.

    Returns:
        The info (None if dataset.json cannot be used), the items in order and the fingerprint: sha256 over
        dataset.json and both metadata.jsonl.
    """
    path = folder / INFO
    try:
        with open_regular(path) as file:
            raw = file.read()
        info = _info(_parse(raw))
    except OSError as error:
        report(f"{path} cannot be read ({error.strerror}); a prepared dataset has one, made by cml prepare.")
        return None, [], ""
    except ValueError as error:
        report(f"{path}: {error}.")
        return None, [], ""
    digests = [hashlib.sha256(raw)]
    reader = _Reader(folder, info.label_column, report)
    with _no_collection():
        for name in dict.fromkeys(FOLDERS.values()):
            digests.append(hashlib.sha256())
            reader.read(name, digests[-1].update)
    counts = Counter(item.role for item in reader.items)
    for role in ROLES:
        if not reader.lost and counts[role] != info.counts.get(role):
            report(f"{path}: counts {info.counts.get(role)} {role} items, but {METADATA} lists {counts[role]}.")
        if not reader.lost and not counts[role] and role in info.roles:
            report(f"{folder} has no {role} items; a dataset needs items of every role: {', '.join(info.roles)}.")
        if counts[role] and role not in info.roles:
            report(f"{path}: details.gallery is 'queries', but {METADATA} lists {counts[role]} {role} items.")
    return info, reader.items, hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()


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
        self.items: list[Row] = []
        self.lost = False  # True once a line could not become an item: counts mean nothing then
        self._folder = folder
        self._label_column = label_column
        self._report = report
        self._form = LabelForm()
        self._seen: dict[tuple[str, str], str] = {}  # ids and images to their line

    def read(self, name: str, hashed: Callable[[bytes], object]) -> None:
        """Read train/ or test/; every line goes through ``hashed`` first."""
        path = self._folder / name / METADATA
        files = _Files(self._folder, name)
        try:
            with open_regular(path) as file:
                for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), start=1):
                    hashed(line)
                    self._line(line, f"{path}:{number}", name, files)
        except OSError as error:
            self.lost = True
            self._report(f"{path} cannot be read ({error.strerror}); it should list the items of {name}/.")

    def _line(self, line: bytes, where: str, name: str, files: _Files) -> None:
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
        item_id, label = entry.get("item_id"), entry.get(self._label_column)
        if not isinstance(item_id, str) or not item_id:
            self._report(f"{where}: item_id should be a text, but is {reprlib.repr(item_id)}.")
        else:
            self._once("item_id", item_id, where)
        if self._label_column not in entry:
            self._report(f"{where}: has no column {self._label_column!r}, the label; it has {', '.join(entry)}.")
        elif not self._label_column.endswith(FILE_COLUMN) and (fault := self._form.fault(label)) is not None:
            self._report(f"{where}: {self._label_column} {fault}.")
        found = []
        for column in ("file_name", *(column for column in entry if column.endswith(FILE_COLUMN))):
            try:
                found.append(files.find(entry.get(column)))
            except ValueError as error:
                self._report(f"{where}: {column} {reprlib.repr(entry.get(column))} {error}.")
                continue
            if column == "file_name":  # a mask may belong to several images
                self._once("image", str(found[-1]), where)
            elif column == self._label_column:
                label = found[-1]
        self.items.append(Row(where, role, item_id, label, found))

    def _once(self, kind: str, name: str, where: str) -> None:
        first = self._seen.setdefault((kind, name), where)
        if first is not where:
            self._report(f"{where}: {kind} {name!r} is listed already in {first}; an item has one line, one role.")


class _Files:
    """Finds what file_name columns name; lists each subfolder once, since asking for 10^5 single files is slow."""

    def __init__(self, dataset: Path, name: str) -> None:
        self._dataset = dataset.resolve()
        self._name = name
        self._root = dataset / name
        # subfolder to its path and its files; True for a file that may lie elsewhere
        self._listings: dict[str, tuple[Path, dict[str, bool]]] = {}

    def find(self, value: object) -> Path:
        """The file that ``value`` names; ValueError says why there is none."""
        parent, _, name = relative_name(value, f"{self._name}/").rpartition("/")
        folder, files = self._listing(parent)
        path = folder / name
        elsewhere = files.get(name)
        if elsewhere is None:
            raise ValueError(f"names a missing file: there is no {path}")
        if elsewhere and not is_inside(path, self._dataset):
            raise ValueError(f"leads out of the dataset, to {path.resolve()}")
        return path

    def _listing(self, parent: str) -> tuple[Path, dict[str, bool]]:
        if parent not in self._listings:
            folder = self._root / parent
            try:
                outside = not is_inside(folder, self._dataset)
                with os.scandir(folder) as entries:
                    files = {entry.name: outside or entry.is_symlink() for entry in entries if entry.is_file()}
            except (OSError, ValueError):  # ValueError: characters that no path can have
                files = {}
            self._listings[parent] = folder, files
        return self._listings[parent]


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
