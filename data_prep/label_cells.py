"""The label of one row of a user's own table, read by its kind and checked."""

import reprlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.vocabulary import split_alias
from cml.data_prep.joint_checks import FLAGS, UNSEEN, check_flags
from cml.data_prep.label_frame import Reach, order_box, to_corners
from cml.data_prep.number_format import PLAIN, NumberFormat
from cml.data_prep.row_files import Row, cell, number
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_ROUNDING = 1e-6  # pixels
MIN_JOINTS = 3  # visible ones, of a person; poses that share fewer are not compared


def read_numbers(
    row: Row,
    columns: Sequence[str],
    where: str,
    written: NumberFormat = PLAIN,
    levels: Sequence[str] = (),  # ordered texts that stand for 0, 1, 2 ...
) -> float | list[float]:
    """Read one number, or the vector of several columns; a cell of a JSONL file may hold the whole vector."""
    values = [cell(row, column, where) for column in columns]
    if levels:
        values = [_read_level(value, column, levels, where) for value, column in zip(values, columns, strict=True)]
    if len(values) == 1 and isinstance(values[0], list):
        return [number(value, columns[0], where, written=written) for value in values[0]]
    numbers = [number(value, column, where, written=written) for value, column in zip(values, columns, strict=True)]
    return numbers[0] if len(numbers) == 1 else numbers


def _read_level(value: object, column: str, levels: Sequence[str], where: str) -> int:
    """The place of a text among ordered ones."""
    text, known = str(value).strip().casefold(), [level.strip().casefold() for level in levels]
    if text not in known:
        raise DataError(f"{where}: {column} should be one of the levels {', '.join(levels)}. Got {value!r} instead.")
    return known.index(text)


def read_box(
    row: Row,
    columns: Sequence[str],  # five columns, or "meaning=column": the class, then the four numbers of ``order_box``
    size: tuple[int, int],  # height and width of the image, in pixels
    where: str,
    written: NumberFormat = PLAIN,
    reach: Reach | None = None,  # gets how far the box reaches
) -> str:
    """Read the box of a row."""
    named = [split_alias(column) for column in columns]
    columns = [column for _, column in named]
    name, ends = read_class(row, columns[:1], where), size[::-1] * 2
    order, form = order_box([meaning for meaning, _ in named[1:]])
    numbers = [number(cell(row, column, where), column, where, written=written) for column in columns[1:]]
    corners = to_corners([numbers[place] for place in order], form)
    if max(numbers) <= 1 and min(numbers) >= 0 and any(value % 1 for value in numbers):
        mend = "they seem to be fractions: multiply x by the image's width and y by its height"
        raise DataError(f"{where}: corners should be in pixels, but all of them lie between 0 and 1; {mend}.")
    if form == "corners" and not (corners[0] < corners[2] and corners[1] < corners[3]):
        got = " ".join(f"{corner:g}" for corner in corners)
        mend = "for x, y, width and height name the columns so, as in --label-columns class x y w=WIDTH h=HEIGHT"
        rule = f"{' '.join(columns[1:])} should be left, top, right, bottom"
        raise DataError(f"{where}: {rule}. Got {got} instead; {mend}.")
    if form != "corners" and min(numbers[place] for place in order[2:]) <= 0:
        raise DataError(f"{where}: width and height should be above 0. Got {' '.join(map(str, numbers))} instead.")
    if reach is not None:
        reach.add_box(np.reshape(corners, (2, 2)), size)
    shown = [columns[1 + place] for place in order] if form == "corners" else ["left", "top", "right", "bottom"]
    for place, (corner, end) in enumerate(zip(corners, ends, strict=True)):
        if not -_ROUNDING <= corner <= end + _ROUNDING:
            rule = f"{shown[place]} should be in the image, 0 to {end} pixels"
            raise DataError(f"{where}: {rule}. Got {corner:g} instead.")
    kept = [min(max(corner, 0.0), float(end)) for corner, end in zip(corners, ends, strict=True)]
    return " ".join([name, *(f"{corner / end:.6g}" for corner, end in zip(kept, ends, strict=True))])


def read_captions(row: Row, columns: Sequence[str], where: str) -> list[str]:  # the captions, at least one
    """Read the captions of a row: a text in each column; a cell of a JSONL file may hold a list of them."""
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
    """Read the class of a row."""
    value = cell(row, columns[0], where)
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        should = "should be the name of a class, or a whole number"
        raise DataError(f"{where}: {columns[0]} {should}. Got {value!r} instead.")
    return unicodedata.normalize("NFC", str(value).strip())


READ: Mapping[str, Callable[[Row, Sequence[str], str], Any]] = {  # what a row and its columns say
    "numbers": read_numbers,
    "captions": read_captions,
    "classes": read_class,
}


def read_joints(
    row: Row,
    columns: Sequence[str],
    names: Sequence[str],
    where: str,
    *,
    # the lowest third number of a visible joint, where it is a confidence; None where it is a flag: 0 hidden, 1 or 2
    # visible
    min_confidence: float | None = None,
    note: Callable[[str], object] | None = None,
) -> Float64:  # joints in pixels, (J, 3): x, y and 1, or all 0 if hidden
    """Read the joints in a cell of a JSONL file.

    A joint is hidden if its third number is 0, if its numbers are null, or if it has no third number and lies at
    exactly (0, 0) or (-1, -1), which annotation tools write for a joint that they did not see.
    """
    column = columns[0]
    value = cell(row, column, where)
    pairs = isinstance(value, list) and all(isinstance(joint, list) and len(joint) in (2, 3) for joint in value)
    if not pairs or not value:
        form = "a list of joints, each [x, y] or [x, y, visible], in a JSONL file"
        raise DataError(f"{where}: {column} should be {form}. Got {reprlib.repr(value)} instead.")
    if names and len(value) != len(names):
        raise DataError(f"{where}: {column} should have {len(names)} joints, as joint_names has; it has {len(value)}.")
    joints = np.array([_read_joint(joint, column, where, min_confidence, note) for joint in value])
    if (visible := int(joints[:, 2].sum())) < MIN_JOINTS:
        raise DataError(f"{where}: {column} should have at least {MIN_JOINTS} visible joints. Got {visible} instead.")
    return joints


def _read_joint(
    joint: Sequence[Any], column: str, where: str, min_confidence: float | None, note: Callable[[str], object] | None
) -> tuple[float, float, float]:
    """x, y and 1, or three zeros for a hidden joint."""
    hidden = (0.0, 0.0, 0.0)
    if joint[0] is None and joint[1] is None:
        return hidden
    x, y, *rest = (number(part, column, where, own=False) for part in joint)
    if rest and min_confidence is None and rest[0] not in FLAGS:
        mend = "for confidences give the lowest one of a visible joint, as in --min-confidence 0.3"
        mend = f"0 means hidden, 1 and 2 visible; {mend}"
        check_flags(np.array(rest), FLAGS, f"{where}: the third number of a joint", mend=mend)
    if not rest and (x, y) in UNSEEN:
        if note is not None:
            note(f"joints at exactly ({x:g}, {y:g}) are taken as hidden; give a visible one the third number 1.")
        return hidden
    is_visible = not rest or rest[0] >= (min_confidence or 1)
    return (x, y, 1.0) if is_visible else hidden


def name_joints(
    names: Sequence[str], count: int
) -> list[str]:  # ``names``, or "joint 1" to "joint J" if there are none
    """Return the names of joints."""
    return list(names) or [f"joint {number}" for number in range(1, count + 1)]


def find_mask(row: Row, columns: Sequence[str], folder: Path, name: str, where: str) -> Path:
    """Find the mask of an image."""
    value = cell(row, columns[0], where) if columns else str(PurePosixPath(name).with_suffix(".png"))
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {columns[0]} should be the path of a mask, relative to {folder}. Got {value!r}.")
    return file_inside(folder, value.strip(), where, "mask")
