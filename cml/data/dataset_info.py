"""dataset.json, which describes a prepared dataset, and the names of its parts."""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cml.data.input_form import InputForm
from cml.errors import UserError, holds_controls
from cml.registry import NAME
from cml.storage.json_file import format_fault, parse_json
from cml.storage.regular_file import open_regular

ROLES = ("train", "query", "gallery")
FOLDERS = {"train": "train", "query": "test", "gallery": "test"}  # role to folder
INFO = "dataset.json"
METADATA = "metadata.jsonl"
ORIGINALS = "originals.npy"  # digests of the files that stored training images were made from, where these differ
VECTORS = "vectors.npy"  # beside each metadata.jsonl, if the items are vectors
TEXT = "text"  # the column of metadata.jsonl that holds an item, if the items are texts
FIXED_COLUMNS = ("file_name", "item_id", "role")
FILE_COLUMN = "_file_name"  # a column with this ending names another file, e.g. the mask in layout_file_name

TEST_ID = " (test)"  # behind the id of a training item that is a test item too, with other labels

_TEXTS = ("name", "task", "label_column", "label_unit", "frame", "source", "licence")  # in the order of DatasetInfo
_NEVER_EMPTY = ("name", "task", "label_column")


@dataclass(frozen=True)
class DatasetInfo:
    """The content of ``dataset.json``."""

    name: str  # a short name: "donkeycar"
    task: str  # the name of the task whose recipe fits: "pose", "value"
    label_column: str  # the column of metadata.jsonl that holds the label: "keypoints", "value"
    label_unit: str  # the unit of the label: "px", "steering angle"
    frame: str  # the coordinate frame of the label in words; "" if it has none
    source: str  # where the items come from
    licence: str  # their licence, or that none is stated
    # what else the task needs: ``{"joints": ["r_ankle", ...], "image_size": [288, 288]}``. ``{"gallery": "queries"}``
    # means that each query is searched among all other queries, without a gallery. ``{"queries": "train"}`` means that
    # the queries are training items again, with other labels; the id of one is that of the training item and " (test)".
    # ``{"group_column": "patient"}`` names the column of metadata.jsonl with the group of each item: training holds out
    # whole groups, and evaluation compares items of different groups.
    # ``{"inputs": {"kind": "vectors", "size": 10, "columns": [...]}}`` means that the items are vectors; see
    # docs/reference/formats.md. ``{"inputs": {"kind": "texts"}}`` means that they are texts, in the column "text"
    details: Mapping[str, Any] = field(default_factory=dict)
    # the provenance: settings and the fingerprint of the source; empty if the dataset was made by hand
    made_with: Mapping[str, Any] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)  # the number of items by role

    @property
    def queries_are_gallery(self) -> bool:
        """Whether the queries are also the gallery, each left out of its own ranking."""
        return self.details.get("gallery") == "queries"

    @property
    def queries_are_known(self) -> bool:
        """Whether the queries are training items again, on purpose: of these, other judgements are held out."""
        return self.details.get("queries") == "train"

    @property
    def group_column(self) -> str:
        """The column of metadata.jsonl that names the group of each item, by which it was split; "" for none."""
        column = self.details.get("group_column", "")
        return column if isinstance(column, str) else ""

    @property
    def inputs(self) -> InputForm:
        """The form of the items: images, unless ``details.inputs`` says that they are vectors or texts."""
        return _input_form(self.details.get("inputs"))

    @property
    def may_miss_numbers(self) -> bool:
        """Whether a number of a vector may be missing (NaN)."""
        return self.inputs.kind == "vectors" and bool(self.details["inputs"].get("missing"))

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the dataset's items."""
        return ROLES[:2] if self.queries_are_gallery else ROLES


def parse_object(raw: bytes) -> dict[str, Any]:
    """Read one JSON object."""
    if not isinstance(value := parse_json(raw), dict):
        raise ValueError(f"should be one JSON object {{...}}, but is {reprlib.repr(value)}")
    return value


def parse_dataset_info(value: dict[str, Any]) -> DatasetInfo:
    """Convert the object in a dataset.json."""
    if fault := format_fault(value):
        raise ValueError(f"{fault}; prepare it again with 'cml prepare'")
    for name in _TEXTS:
        text = value.get(name)
        if not isinstance(text, str) or (name in _NEVER_EMPTY and not text):
            raise ValueError(f"{name} should be a text, but is {reprlib.repr(text)}")
        if holds_controls(text):
            raise ValueError(f"{name} should be printable text in one line, but is {reprlib.repr(text)}")
    if not NAME.fullmatch(value["task"]):
        raise ValueError(f"task should be the name of a task, but is {reprlib.repr(value['task'])}")
    if value["label_column"] in FIXED_COLUMNS:
        raise ValueError(f"label_column cannot be {value['label_column']!r}, a reserved column")
    rest = {name: value.get(name, {}) for name in ("details", "made_with", "counts")}
    for name, content in rest.items():
        if not isinstance(content, dict):
            raise ValueError(f"{name} should be an object {{...}}, but is {reprlib.repr(content)}")
    info = DatasetInfo(*(value[name] for name in _TEXTS), **rest)
    _ = info.inputs  # raises what is wrong with it
    return info


def read_dataset_info(
    folder: Path,
) -> DatasetInfo | None:  # its content; None where there is no dataset, which whoever opens it reports
    """Read the dataset.json of a dataset alone."""
    try:
        with open_regular(folder / INFO) as file:
            return parse_dataset_info(parse_object(file.read()))
    except (OSError, ValueError):
        return None


def _input_form(value: Any) -> InputForm:  # noqa: ANN401 - of a file, anything
    """The form of the items that ``details.inputs`` describes; ``ValueError`` if it does not."""
    if value is None:
        return InputForm()
    if isinstance(value, dict) and value.get("kind") == "texts":
        return InputForm("texts", fields=(TEXT,))
    if not isinstance(value, dict) or value.get("kind") != "vectors":
        raise ValueError(
            f'details.inputs should be {{"kind": "vectors", "size": F}} or {{"kind": "texts"}}, but is '
            f"{reprlib.repr(value)}"
        )
    size, columns, missing = value.get("size"), value.get("columns", []), value.get("missing", False)
    if not isinstance(size, int) or isinstance(size, bool):
        raise ValueError(f"details.inputs.size should be a whole number, but is {reprlib.repr(size)}")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise ValueError(f"details.inputs.columns should be a list of names, but is {reprlib.repr(columns)}")
    if not isinstance(missing, bool):
        raise ValueError(f"details.inputs.missing should be true or false, but is {reprlib.repr(missing)}")
    try:
        return InputForm("vectors", (size,), tuple(columns))
    except UserError as error:
        raise ValueError(f"details.inputs: {str(error).removesuffix('.')}") from None
