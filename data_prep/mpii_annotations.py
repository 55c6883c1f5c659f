"""The two files in which MPII people come: the official .mat and the .json that HRNet's authors made of it.

Both give the same people in the same form, checked one by one. Not for: which of them are kept, their crops and their
roles (mpii.py).
"""

import math
import reprlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cml.data_prep.mat_file import read_variable
from cml.data_prep.person_crop import Float64, finite
from cml.errors import DataError
from cml.storage.atomic import read_json

JOINTS = (
    *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax", "upper_neck", "head_top"),
    *("r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist"),
)


class Person(NamedTuple):
    """One person of an image."""

    image: str  # name of the image file
    # which of the image's people, from 1: in the .mat its place in annorect, in the .json among the entries of
    # the image
    number: int
    group: str  # what must not straddle training and test: the video in the .mat, where it says which, else the image
    center: Float64 | None  # (2,) the middle of the person, or None if the file does not say it
    height: float | None  # of the person in pixels (200 times its scale), or None
    joints: Float64  # (16, 3) x, y and 1, or zeros for a joint without a place. Whether it is occluded does not matter.
    where: str  # "FILE: image IMAGE, person NUMBER"


Numbered = tuple[str, int, Person | DataError]


def read_people(path: Path) -> Iterator[Numbered]:
    """All people of an annotation file in its order: image, number, and the person or what is wrong with it.

    Coordinates become pixels from the outer edge of the first pixel: both files count pixels from 1.
    """
    return _from_json(path) if path.suffix.lower() == ".json" else _from_mat(path)


# ---- the official .mat


def _from_mat(path: Path) -> Iterator[Numbered]:
    release: Any = read_variable(path, "RELEASE", struct_as_record=False, squeeze_me=True)
    images = _structs(release, "annolist")
    if not images:
        raise DataError(f"{path}: RELEASE.annolist should list the images. Got none.")
    for row, entry in enumerate(images, start=1):
        people = _structs(entry, "annorect")
        names = _structs(entry, "image")
        name = getattr(names[0], "name", "") if names else ""
        if people and not (isinstance(name, str) and name):
            yield "", row, DataError(f"{path}: annolist({row}) has no image.name.")
            continue
        video = _number(getattr(entry, "vididx", None))
        group = name if video is None else f"video {video:g}"
        for number, rect in enumerate(people, start=1):
            where = f"{path}: image {name}, person {number}"
            try:
                center = _place((_structs(rect, "objpos") or [None])[0])
                scale = _number(getattr(rect, "scale", None))
                height, joints = _height(scale, where), _mat_joints(rect, where)
                yield name, number, Person(name, number, group, center, height, joints, where)
            except DataError as error:
                yield name, number, error


def _mat_joints(rect: object, where: str) -> Float64:
    joints = np.zeros((len(JOINTS), 3))
    for points in _structs(rect, "annopoints"):
        for point in _structs(points, "point"):
            number = _number(getattr(point, "id", None))
            if number is None or number not in range(len(JOINTS)):
                raise DataError(f"{where}: a joint's id should be 0 to 15. Got {number} instead.")
            joint, place = int(number), _place(point)
            if place is None or not np.isfinite(place).all():
                raise DataError(f"{where}: {JOINTS[joint]} has no finite place.")
            if joints[joint, 2]:
                raise DataError(f"{where}: {JOINTS[joint]} is there twice.")
            visible = getattr(point, "is_visible", "")  # '0', '1', 0, 1, or empty as it is for heads
            if np.size(visible) and str(visible) != "" and _number(visible) not in (0, 1):
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


def _number(value: object) -> float | None:
    """A field as a number; None if it is missing or empty."""
    if value is None:
        return None
    try:
        return float(np.asarray(value, np.float64).reshape(-1)[0])
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _place(point: object) -> Float64 | None:
    x, y = _number(getattr(point, "x", None)), _number(getattr(point, "y", None))
    return None if x is None or y is None else np.array([x, y]) - 0.5


def _height(scale: float | None, where: str) -> float | None:
    if scale is not None and not 0 < scale < math.inf:
        raise DataError(f"{where}: the scale should be a number above 0. Got {scale:g} instead.")
    return None if scale is None else 200 * scale


# ---- HRNet's .json


def _from_json(path: Path) -> Iterator[Numbered]:
    entries = read_json(path, "a list of people", finite=False)
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} should be a list of people. Got {reprlib.repr(entries)} instead.")
    seen: Counter[str] = Counter()
    for row, entry in enumerate(entries, start=1):
        name = entry.get("image") if isinstance(entry, dict) else None
        if not isinstance(name, str) or not name:
            fault = f"{path}: entry {row} should name its image. Got {reprlib.repr(entry)} instead."
            yield "", row, DataError(fault)
            continue
        seen[name] += 1
        where = f"{path}: image {name}, person {seen[name]}"
        try:
            yield name, seen[name], _json_person(entry, name, seen[name], where)
        except DataError as error:
            yield name, seen[name], error


def _json_person(entry: dict[str, Any], name: str, number: int, where: str) -> Person:
    joints = np.zeros((len(JOINTS), 3))
    if "joints" in entry:  # the file of the test images has none
        places = finite(entry["joints"], (len(JOINTS), 2), f"{where}: joints")
        flags = finite(entry.get("joints_vis"), (len(JOINTS),), f"{where}: joints_vis")
        if not np.isin(flags, (0, 1)).all():
            raise DataError(f"{where}: joints_vis should be 0 or 1. Got {entry['joints_vis']} instead.")
        placed = ~((places == -1).all(axis=1) | ((flags == 0) & (places <= 0).all(axis=1)))
        joints[placed] = np.column_stack([places[placed] - 0.5, np.ones(placed.sum())])
    scale = entry.get("scale")
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise DataError(f"{where}: the scale should be a number above 0. Got {scale!r} instead.")
    center = finite(entry.get("center"), (2,), f"{where}: center") - 0.5
    return Person(name, number, name, center, _height(scale, where), joints, where)
