"""The label of one row of a user's own table, read by its kind and checked."""

import reprlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from cml.data_prep.label_kinds import KindName, distance_of
from cml.data_prep.person_crop import Float64
from cml.data_prep.row_files import Row, cell, number
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_OFF = 2e-3  # how far a rotation's rows may be from unit length and square


MIN_JOINTS = 3  # visible ones, of a person; poses that share fewer are not compared


def read_numbers(row: Row, columns: Sequence[str], where: str) -> float | list[float]:
    """Read one number, or the vector of several columns; a cell of a JSONL file may hold the whole vector.

    Args:
        row: The row, by its columns.
        columns: The label columns.
        where: "FILE:LINE", for errors.

    Returns:
        The number or the vector.

    Raises:
        DataError: A column is missing, or a cell holds no finite number.
    """
    values = [cell(row, column, where) for column in columns]
    if len(values) == 1 and isinstance(values[0], list):
        return [number(value, columns[0], where) for value in values[0]]
    numbers = [number(value, column, where) for value, column in zip(values, columns, strict=True)]
    return numbers[0] if len(numbers) == 1 else numbers


def read_checked_numbers(
    kind: KindName, row: Row, columns: Sequence[str], distance: str, where: str
) -> float | list[float]:
    """Read a label of a kind of numbers, and check the ranges of places and rotations.

    Args:
        kind: The kind of label.
        row: The row, by its columns.
        columns: The label columns.
        distance: The label distance that the user chose; "" for that of the kind, whose rules are then checked.
        where: "FILE:LINE", for errors.

    Returns:
        The number or the vector.

    Raises:
        DataError: The label is not as the kind has it, or as of ``read_numbers``.
    """
    label = read_numbers(row, columns, where)
    if distance:
        return label
    distance_of(kind, label, where)
    if kind == "place" and isinstance(label, list):
        for value, (name, low, high) in zip(label, (("latitude", -90, 90), ("longitude", -180, 360)), strict=False):
            if not low <= value <= high:
                raise DataError(f"{where}: the {name} should be in {low}..{high} degrees. Got {value:g} instead.")
    if kind == "rotation" and isinstance(label, list) and len(label) != 3:
        rows = np.reshape(label, (-1, 3 if len(label) == 9 else 4))
        off = np.abs(rows @ rows.T - np.eye(len(rows))).max()
        if off > _OFF or (len(rows) == 3 and np.linalg.det(rows) < 0):
            form = "quaternion x, y, z, w of length 1"
            if len(rows) == 3:
                form = "matrix whose rows are a right-handed frame"
            got = " ".join(f"{value:g}" for value in label)
            raise DataError(f"{where}: {' '.join(columns)} should be a {form}. Got {got} instead.")
    return label


def read_box(row: Row, columns: Sequence[str], size: tuple[int, int], where: str) -> str:
    """Read the box of a row.

    Args:
        row: The row, by its columns.
        columns: Five columns: the class, then left, top, right and bottom in pixels of the image.
        size: Height and width of the image, in pixels.
        where: "FILE:LINE", for errors.

    Returns:
        "class x0 y0 x1 y1", with corners as shares of the image's width and height.

    Raises:
        DataError: A corner lies outside the image, or the box is empty.
    """
    name, ends = read_class(row, columns[:1], where), size[::-1] * 2
    corners = [number(cell(row, column, where), column, where) for column in columns[1:]]
    for corner, column, end in zip(corners, columns[1:], ends, strict=True):
        if not 0 <= corner <= end:
            raise DataError(f"{where}: {column} should be in the image, 0 to {end} pixels. Got {corner:g} instead.")
    if not (corners[0] < corners[2] and corners[1] < corners[3]):
        got = " ".join(f"{corner:g}" for corner in corners)
        raise DataError(f"{where}: {' '.join(columns[1:])} should be left, top, right, bottom. Got {got} instead.")
    return " ".join([name, *(f"{corner / end:.6g}" for corner, end in zip(corners, ends, strict=True))])


def read_captions(row: Row, columns: Sequence[str], where: str) -> list[str]:
    """Read the captions of a row: a text in each column; a cell of a JSONL file may hold a list of them.

    Args:
        row: The row, by its columns.
        columns: The label columns. Empty texts are skipped.
        where: "FILE:LINE", for errors.

    Returns:
        The captions, at least one.

    Raises:
        DataError: There is no caption, or a cell holds something other than texts.
    """
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


def read_class(row: Row, columns: Sequence[str], where: str) -> str:
    """Read the class of a row.

    Args:
        row: The row, by its columns.
        columns: The label column.
        where: "FILE:LINE", for errors.

    Returns:
        The name of the class; a whole number as a text.

    Raises:
        DataError: The cell holds neither a text nor a whole number.
    """
    value = cell(row, columns[0], where)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        should = "should be the name of a class, or a whole number"
        raise DataError(f"{where}: {columns[0]} {should}. Got {value!r} instead.")
    return str(value).strip()


READ = {"numbers": read_numbers, "captions": read_captions, "classes": read_class}  # what a row and its columns say


def read_joints(row: Row, columns: Sequence[str], names: Sequence[str], where: str) -> Float64:
    """Read the joints in a cell of a JSONL file.

    Args:
        row: The row, by its columns.
        columns: The label column.
        names: The names of the joints, whose number is checked; empty if there are none.
        where: "FILE:LINE", for errors.

    Returns:
        Joints in pixels, (J, 3): x, y and 1, or all 0 if hidden.

    Raises:
        DataError: The cell holds no list of joints, or too few visible ones.
    """
    column = columns[0]
    value = cell(row, column, where)
    pairs = isinstance(value, list) and all(isinstance(joint, list) and len(joint) in (2, 3) for joint in value)
    if not pairs or not value:
        form = "a list of joints, each [x, y] or [x, y, visible], in a JSONL file"
        raise DataError(f"{where}: {column} should be {form}. Got {reprlib.repr(value)} instead.")
    if names and len(value) != len(names):
        raise DataError(f"{where}: {column} should have {len(names)} joints, as joint_names has; it has {len(value)}.")
    joints = np.array([[*(number(part, column, where) for part in joint), 1.0][:3] for joint in value])
    joints[:, 2] = joints[:, 2] > 0
    joints[joints[:, 2] == 0] = 0
    if (visible := int(joints[:, 2].sum())) < MIN_JOINTS:
        raise DataError(f"{where}: {column} should have at least {MIN_JOINTS} visible joints. Got {visible} instead.")
    return joints


def name_joints(names: Sequence[str], count: int) -> list[str]:
    """Return the names of joints.

    Args:
        names: The names that the user gave, if any.
        count: Number of joints, J.

    Returns:
        ``names``, or "joint 1" to "joint J" if there are none.
    """
    return list(names) or [f"joint {number}" for number in range(1, count + 1)]


def find_mask(row: Row, columns: Sequence[str], folder: Path, name: str, where: str) -> Path:
    """Find the mask of an image.

    Args:
        row: The image's row, by its columns.
        columns: The column with the mask's path; if empty, the mask has the image's name, ending in .png.
        folder: Folder of the masks.
        name: Path of the image.
        where: "FILE:LINE", for errors.

    Returns:
        The mask's file.

    Raises:
        DataError: The cell holds no path, or there is no such file in the folder.
    """
    value = cell(row, columns[0], where) if columns else str(PurePosixPath(name).with_suffix(".png"))
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {columns[0]} should be the path of a mask, relative to {folder}. Got {value!r}.")
    return file_inside(folder, value.strip(), where, "mask")
