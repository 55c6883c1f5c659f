"""The label of one row of a user's own table, read by its kind and checked."""

import reprlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from cml.data_prep.label_kinds import KindName, distance_of
from cml.data_prep.person_crop import Float64
from cml.data_prep.table import Row, cell, number
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_OFF = 2e-3  # how far a rotation's rows may be from unit length and square


MIN_JOINTS = 3  # visible ones, of a person; poses that share fewer are not compared


def numbers_of(row: Row, columns: Sequence[str], where: str) -> float | list[float]:
    """One number, or the vector of several columns; a JSONL cell may hold the whole vector."""
    values = [cell(row, column, where) for column in columns]
    if len(values) == 1 and isinstance(values[0], list):
        return [number(value, columns[0], where) for value in values[0]]
    numbers = [number(value, column, where) for value, column in zip(values, columns, strict=True)]
    return numbers[0] if len(numbers) == 1 else numbers


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
