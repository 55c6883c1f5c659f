"""A user's own images: the kinds of label that they may have, and how they are dealt to train, query and gallery."""

import hashlib
import math
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np

from cml.data.masks import MaskFault, read_mask
from cml.data_prep.person_crop import Float64
from cml.data_prep.source import dealt
from cml.data_prep.table import Row, cell, number
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.storage.safe_paths import file_inside

KindName = Literal["numbers", "angle", "rotation", "place", "boxes", "captions", "classes", "masks", "keypoints"]
SHARES = "boxes in shares of the image's width and height"


@dataclass
class Labelled:
    """An image and what the rows say of it."""

    item_id: str  # the image's name; with a number, if it shows more people than one
    name: str  # the image's path, relative to the folder of the images
    where: str  # "FILE:LINE" of its first row
    split: str | None  # what the split column says, or None
    group: str  # what the group column says, or the image's name
    label: Any  # the label; for captions the list that further rows add to; for masks the file


class Kind(NamedTuple):
    """What a kind of label fixes."""

    task: str  # the task that the dataset belongs to
    unit: str  # the unit of its labels, where the user states none
    default: tuple[str, ...]  # the columns of the user's file, where the user names none
    distances: Mapping[int, str] = {}  # by how many numbers a label has, 0 for any; none where the task knows it


_ROTATIONS = {4: "rotation", 3: "rotation(form=euler)", 9: "rotation(form=matrix)"}
KINDS: Mapping[KindName, Kind] = {
    "numbers": Kind("value", "", ("value",), {0: "euclidean"}),
    "angle": Kind("value", "degrees", ("angle",), {0: "circular"}),
    "rotation": Kind("value", "rotation", ("x", "y", "z", "w"), _ROTATIONS),
    "place": Kind("value", "degrees", ("latitude", "longitude"), {2: "haversine", 3: "place"}),
    "boxes": Kind("value", "boxes", ("class", "x0", "y0", "x1", "y1"), {0: "boxes"}),
    "captions": Kind("caption", "captions", ("caption",)),
    "classes": Kind("classes", "", ("class",)),
    "masks": Kind("layout", "id of a region", ()),
    "keypoints": Kind("pose", "px", ("keypoints",)),
}
_OFF = 2e-3  # how far a rotation's rows may be from unit length and square
FEW = 200  # test items; of fewer, each is a query that is searched among all others
MIN_JOINTS = 3  # visible ones, of a person; poses that share fewer are not compared


def numbers_of(row: Row, columns: Sequence[str], where: str) -> float | list[float]:
    """One number, or the vector of several columns; a JSONL cell may hold the whole vector."""
    values = [cell(row, column, where) for column in columns]
    if len(values) == 1 and isinstance(values[0], list):
        return [number(value, columns[0], where) for value in values[0]]
    numbers = [number(value, column, where) for value, column in zip(values, columns, strict=True)]
    return numbers[0] if len(numbers) == 1 else numbers


def distance_of(kind: KindName, label: Any, where: str) -> str:  # noqa: ANN401 - one of the kind's forms
    """The label distance of a kind of numbers."""
    choices, numbers = KINDS[kind].distances, len(label) if isinstance(label, list) else 1
    found = choices.get(numbers, choices.get(0, ""))
    if not found:
        wanted = " or ".join(map(str, sorted(choices)))
        raise DataError(f"{where}: a label of kind {kind!r} should have {wanted} numbers. It has {numbers}.")
    return found


def check_distance(kind: KindName, text: str) -> None:
    """Refuse a label distance that a kind of label cannot have."""
    known = {Choice.parse(one).name for each in KINDS.values() for one in each.distances.values()} - {"boxes"}
    if kind == "boxes" or not KINDS[kind].distances:
        raise UserError(f"Labels of kind {kind!r} have a label distance already: leave label_distance={text!r} out.")
    if Choice.parse(text).name not in known:
        raise UserError(f"The 'label_distance' should be one of {', '.join(sorted(known))}. Got {text!r} instead.")


def checked_numbers(kind: KindName, row: Row, columns: Sequence[str], distance: str, where: str) -> float | list[float]:
    """The label of a kind of numbers; ``distance`` is the user's own label distance, "" for the kind's."""
    label = numbers_of(row, columns, where)
    if distance:
        return label
    distance_of(kind, label, where)
    if kind == "place" and isinstance(label, list):
        for value, (what, low, high) in zip(label, (("latitude", -90, 90), ("longitude", -180, 360)), strict=False):
            if not low <= value <= high:
                raise DataError(f"{where}: the {what} should be in {low}..{high} degrees. Got {value:g} instead.")
    if kind == "rotation" and isinstance(label, list) and len(label) != 3:
        rows = np.reshape(label, (-1, 3 if len(label) == 9 else 4))
        off = np.abs(rows @ rows.T - np.eye(len(rows))).max()
        if off > _OFF or (len(rows) == 3 and np.linalg.det(rows) < 0):
            square, got = "matrix whose rows are a right-handed frame", " ".join(f"{value:g}" for value in label)
            what = "quaternion x, y, z, w of length 1" if len(rows) == 1 else square
            raise DataError(f"{where}: {' '.join(columns)} should be a {what}. Got {got} instead.")
    return label


def box_of(row: Row, columns: Sequence[str], size: tuple[int, int], where: str) -> str:
    """The box of a row as "class x0 y0 x1 y1", in shares of the image's width and height, where it is in pixels."""
    name, ends = class_of(row, columns[:1], where), size[::-1] * 2
    corners = [number(cell(row, column, where), column, where) for column in columns[1:]]
    for corner, column, end in zip(corners, columns[1:], ends, strict=True):
        if not 0 <= corner <= end:
            raise DataError(f"{where}: {column} should be in the image, 0 to {end} pixels. Got {corner:g} instead.")
    if not (corners[0] < corners[2] and corners[1] < corners[3]):
        got = " ".join(f"{corner:g}" for corner in corners)
        raise DataError(f"{where}: {' '.join(columns[1:])} should be left, top, right, bottom. Got {got} instead.")
    return " ".join([name, *(f"{corner / end:.6g}" for corner, end in zip(corners, ends, strict=True))])


def captions_of(row: Row, columns: Sequence[str], where: str) -> list[str]:
    """The captions of a row: a text a column, empty ones passed over; a JSONL cell may hold a list of them."""
    captions = []
    for column in columns:
        value = cell(row, column, where)
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str):
                raise DataError(f"{where}: {column} should be a text, or a list of texts. Got {value!r} instead.")
            if text.strip():
                captions.append(" ".join(text.split()))
    if not captions:
        raise DataError(f"{where}: {' and '.join(columns)} should hold a caption, but is empty; delete the line.")
    return captions


def class_of(row: Row, columns: Sequence[str], where: str) -> str:
    """The class of a row: a text or a whole number, as a text."""
    value = cell(row, columns[0], where)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        should = "should be the name of a class, or a whole number"
        raise DataError(f"{where}: {columns[0]} {should}. Got {value!r} instead.")
    return str(value).strip()


READ = {"numbers": numbers_of, "captions": captions_of, "classes": class_of}  # what a row and its columns say


def joints_of(row: Row, columns: Sequence[str], names: Sequence[str], where: str) -> Float64:
    """The joints of a JSONL cell in pixels: (J, 3), x, y and 1, or all 0 if hidden; as many as ``names``, if any."""
    column = columns[0]
    value = cell(row, column, where)
    pairs = isinstance(value, list) and all(isinstance(one, list) and len(one) in (2, 3) for one in value)
    if not pairs or not value:
        what = "a list of joints, each [x, y] or [x, y, visible], which takes a JSONL file"
        raise DataError(f"{where}: {column} should be {what}. Got {reprlib.repr(value)} instead.")
    if names and len(value) != len(names):
        raise DataError(f"{where}: {column} should have {len(names)} joints, as joint_names has; it has {len(value)}.")
    joints = np.array([[*(number(one, column, where) for one in joint), 1.0][:3] for joint in value])
    joints[:, 2] = joints[:, 2] > 0
    joints[joints[:, 2] == 0] = 0
    if (visible := int(joints[:, 2].sum())) < MIN_JOINTS:
        raise DataError(f"{where}: {column} should have at least {MIN_JOINTS} visible joints. Got {visible} instead.")
    return joints


def joint_names(names: Sequence[str], count: int) -> list[str]:
    """The names of J = ``count`` joints: ``names``, or "joint 1" and so on where there are none."""
    return list(names) or [f"joint {number}" for number in range(1, count + 1)]


def mask_of(row: Row, columns: Sequence[str], folder: Path, name: str, where: str) -> Path:
    """The mask of the image ``name`` in ``folder``: what the row's column names, or the PNG of the image's name."""
    value = cell(row, columns[0], where) if columns else str(PurePosixPath(name).with_suffix(".png"))
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {columns[0]} should be the path of a mask, relative to {folder}. Got {value!r}.")
    return file_inside(folder, value.strip(), where, "mask")


def named_ids(names: Sequence[str]) -> dict[str, str]:
    """What the ids of masks mean, of texts such as "1=wall": id, as a text, to name."""
    ids: dict[str, str] = {}
    for text in names:
        key, _, name = text.partition("=")
        if not (key.isdecimal() and int(key) <= 255) or not name.strip() or str(int(key)) in ids:
            form = "1=wall 2=floor .., an id from 0 to 255 once each"
            raise UserError(f"mask_names should read {form}. Got {text!r} instead.")
        ids[str(int(key))] = name.strip()
    return ids


def found_ids(masks: Iterable[Path], ignore_id: int | None) -> dict[str, str]:
    """The ids that occur in masks, called "region 1" and so on; a mask that cannot be read is passed over here."""
    with ThreadPoolExecutor() as pool:
        present = set().union(*pool.map(_present, masks)) - {ignore_id}
    return {str(one): f"region {one}" for one in sorted(present)}


def _present(path: Path) -> set[Any]:
    try:
        return set(np.unique(read_mask(path)).tolist())
    except MaskFault:
        return set()


def roles(
    items: Sequence[Labelled], test_share: float, query_share: float, *, seed: int, classes: bool, grouped: bool
) -> dict[str, str]:
    """Train, query or gallery for every item; where nothing is gallery, queries are searched among themselves.

    ``grouped``: groups were given, whose items must not find each other.
    """
    groups = {one.name: one.group for one in items}
    found = {one.name: one.split or "train" for one in items}
    if all(one.split is None for one in items):
        if classes:
            unseen = deal_classes((one.label for one in items), test_share)
            held = {one.name for one in items if one.label in unseen}
        else:
            held = dealt(groups, test_share, seed=seed, salt="test")
        found |= dict.fromkeys(held, "test")
    test = {name: groups[name] for name, role in found.items() if role == "test"}
    own_gallery = "gallery" in found.values()
    if query_share == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return found | dict.fromkeys(test, "query")
    queries = dealt(test, query_share, seed=seed, salt="query") if test else set()
    return found | {name: "query" if name in queries else "gallery" for name in test}


def deal_classes(classes: Iterable[str], test_share: float) -> set[str]:
    """The classes that are for testing alone: those of the least hashes of their names, one at least."""
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) < 3:  # 2 to train on and 1 that is never seen
        got = ", ".join(map(repr, sorted(known))) or "none"
        mend = "with fewer, name a split_column that says train, query and gallery"
        why = "as testing takes classes that were not trained on"
        raise UserError(f"There should be at least 3 classes, {why}. Got {got}; {mend}.")
    return set(known[: min(max(1, math.floor(test_share * len(known) + 0.5)), len(known) - 2)])
