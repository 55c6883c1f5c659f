"""The two annotation files of MPII people: the official .mat and the .json of HRNet's authors."""

import math
import reprlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.data_prep.joint_checks import check_flags, is_unseen, read_finite
from cml.data_prep.mat_file import read_variable
from cml.errors import DataError
from cml.storage.json_file import read_json

JOINTS = (
    *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax", "upper_neck", "head_top"),
    *("r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist"),
)


class Person(NamedTuple):
    """One person of an image."""

    image: str
    number: int  # from 1, among the image's people: in the .mat the place in annorect, in the .json among its entries
    group: str  # what must not straddle training and test: the video in the .mat, where it says which, else the image
    center: Float64 | None  # (2,) the middle of the person, or None if the file does not say it
    height: float | None  # of the person in pixels (200 times its scale), or None
    joints: Float64  # (16, 3) x, y and 1, or zeros for a joint without a place. Whether it is occluded does not matter.
    where: str  # "FILE: image IMAGE, person NUMBER"


def read_people(path: Path) -> Iterator[tuple[str, int, Person | DataError]]:
    """All people of an annotation file, which counts pixels from 1: image, number, the person or what is wrong."""
    return _from_json(path) if path.suffix.lower() == ".json" else _from_mat(path)


def _from_mat(path: Path) -> Iterator[tuple[str, int, Person | DataError]]:
    release: Any = read_variable(path, "RELEASE", struct_as_record=False, squeeze_me=True)
    images = _structs(release, "annolist")
    if not images:
        raise DataError(f"{path}: RELEASE.annolist should list the images. Got none.")
    for row, entry in enumerate(images, start=1):
        people, names = _structs(entry, "annorect"), _structs(entry, "image")
        name = getattr(names[0], "name", "") if names else ""
        if people and not (isinstance(name, str) and name):
            yield "", row, DataError(f"{path}: annolist({row}) has no image.name.")
            continue
        video = _number(entry, "vididx")
        group = name if video is None else f"video {video:g}"
        for number, rect in enumerate(people, start=1):
            where = f"{path}: image {name}, person {number}"
            try:
                center = _place((_structs(rect, "objpos") or [None])[0])
                height, joints = _height(_number(rect, "scale"), where), _mat_joints(rect, where)
                yield name, number, Person(name, number, group, center, height, joints, where)
            except DataError as error:
                yield name, number, error


def _mat_joints(rect: object, where: str) -> Float64:
    joints = np.zeros((len(JOINTS), 3))
    for point in (point for points in _structs(rect, "annopoints") for point in _structs(points, "point")):
        number = _number(point, "id")
        if number is None or number not in range(len(JOINTS)):
            raise DataError(f"{where}: a joint's id should be 0 to 15. Got {number} instead.")
        joint, place = int(number), _place(point)
        if place is None or not np.isfinite(place).all():
            raise DataError(f"{where}: {JOINTS[joint]} has no finite place.")
        if (place + 0.5 == -1).all():  # as the .json writes a missing joint
            continue
        if joints[joint, 2]:
            raise DataError(f"{where}: {JOINTS[joint]} is there twice.")
        visible = getattr(point, "is_visible", "")  # '0', '1', 0, 1, or empty as it is for heads
        if np.size(visible) and str(visible) != "" and _number(point, "is_visible") not in (0, 1):
            raise DataError(f"{where}: {JOINTS[joint]} should be visible 0, 1 or nothing. Got {visible!r} instead.")
        joints[joint] = [*place, 1]
    return joints


def _structs(owner: object, name: str) -> list[Any]:
    """A field as a list of structs: it may be missing, empty, one struct or an array of them."""
    value = getattr(owner, name, None)
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if hasattr(entry, "_fieldnames")]


def _number(owner: object, name: str) -> float | None:
    """A field as a number; None if it is missing or empty."""
    try:
        return float(np.asarray(getattr(owner, name), np.float64).reshape(-1)[0])
    except (AttributeError, ValueError, TypeError, IndexError, OverflowError):
        return None


def _place(point: object) -> Float64 | None:
    x, y = _number(point, "x"), _number(point, "y")
    return None if x is None or y is None else np.array([x, y]) - 0.5


def _height(scale: float | None, where: str) -> float | None:
    if scale is not None and not 0 < scale < math.inf:
        raise DataError(f"{where}: the scale should be a number above 0. Got {scale:g} instead.")
    return None if scale is None else 200 * scale


def _from_json(path: Path) -> Iterator[tuple[str, int, Person | DataError]]:
    entries = read_json(path, "a list of people", finite=False)
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} should be a list of people. Got {reprlib.repr(entries)} instead.")
    seen: Counter[str] = Counter()
    for row, entry in enumerate(entries, start=1):
        name = entry.get("image") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            yield "", row, DataError(f"{path}: entry {row} should name its image. Got {reprlib.repr(entry)} instead.")
            continue
        seen[name] += 1
        try:
            yield name, seen[name], _json_person(entry, name, seen[name], f"{path}: image {name}, person {seen[name]}")
        except DataError as error:
            yield name, seen[name], error


def _json_person(entry: dict[str, Any], name: str, number: int, where: str) -> Person:
    joints = np.zeros((len(JOINTS), 3))
    if "joints" in entry:  # the file of the test images has none
        places = read_finite(entry["joints"], (len(JOINTS), 2), f"{where}: joints")
        flags = read_finite(entry.get("joints_vis"), (len(JOINTS),), f"{where}: joints_vis")
        check_flags(flags, (0, 1), f"{where}: joints_vis")
        placed = ~(is_unseen(places) | ((flags == 0) & (places <= 0).all(axis=1)))  # pixels are counted from 1
        joints[placed] = np.column_stack([places[placed] - 0.5, np.ones(placed.sum())])
    scale = entry.get("scale")
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise DataError(f"{where}: the scale should be a number above 0. Got {scale!r} instead.")
    center = read_finite(entry.get("center"), (2,), f"{where}: center") - 0.5
    return Person(name, number, name, center, _height(scale, where), joints, where)
