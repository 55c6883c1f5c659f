"""MPII Human Pose: photographs from videos of everyday activities, cut to one person each, with 16 joints."""

import math
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from cml.array_types import Float64
from cml.data.images import Size, native_size
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.joint_checks import check_flags, check_joints_inside, is_unseen, read_finite
from cml.data_prep.mat_file import read_variable
from cml.data_prep.person_crop import FRAME, box_around, into_crop
from cml.data_prep.person_items import person_item, pose_content
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError
from cml.storage.json_file import read_json
from cml.storage.safe_paths import file_inside

# The two annotation files of MPII people: the official .mat and the .json of HRNet's authors.

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


# The file that lists MPII people with their roles, as the paper's split needs it.

Listed = dict[tuple[str, int | None], tuple[str, str]]  # (image, person or None for all) to (role, "FILE:LINE")


def read_split(path: Path, queries: int) -> Listed:
    """Read a split file: lines ``IMAGE [PERSON] ROLE``; test lines after the first ``queries`` are the gallery."""
    listed: Listed = {}
    tests = 0
    for where, line in read_lines(path):
        if not (words := line.partition("#")[0].split()):
            continue
        image, *who, role = words if len(words) > 1 else [*words, ""]
        is_number = len(who) < 2 and all(person.isdecimal() and int(person) > 0 for person in who)
        if role not in ("train", "query", "gallery", "test") or not is_number:
            form = "IMAGE [PERSON] ROLE with a PERSON from 1 and train, query, gallery or test as the ROLE"
            raise DataError(f"{where}: should be {form}. Got {line.strip()!r} instead.")
        if role == "test":
            tests += 1
            role = "query" if tests <= queries else "gallery"
        key = image, int(who[0]) if who else None
        if key in listed:
            raise DataError(f"{where}: is already in {listed[key][1]}; a person has one line.")
        listed[key] = role, where
    if not listed:
        raise DataError(f"{path} lists no people.")
    return listed


_SEEN = 224 / 288  # share of a stored crop's side that the pose recipe shows the network


_DOWN = 0.075  # heights from the annotated middle of a person down to the crop's, so that feet are not cut off


@dataclass(frozen=True)
class Mpii(DatasetSource):
    """MPII Human Pose: people with 16 joints each, in square crops.

    Command: cml prepare mpii --annotations mpii_human_pose_v1_u12_1.mat --images images --out DIR

    Input: the official .mat, or HRNet's .json (both count pixels from 1), and the folder of the images. People without
    joints, as all of the official test images, without a place or without a scale are left out and counted. A joint
    has a place or has none; whether it is marked as occluded does not matter.

    A crop's middle lies 15 px times scale below the person's annotated middle. Its centre box of 224 / 288, which the
    pose recipe shows the network, has 1.25 person heights (200 px times scale) as its side. Beyond the photograph its
    border is repeated. Joints well outside the photograph make a person a bad one.

    Split: the paper's needs a file that lists its people, one per line: IMAGE [PERSON] ROLE. ROLE is train, query,
    gallery or test; the first 1,919 lines with test are queries, later ones the gallery. PERSON counts the image's
    people from 1 (in the .mat: the place in annorect); without it the line means all of them. # begins a comment. Who
    is not listed is left out. Without such a file the role follows from a hash of the video (of the image, where the
    annotations do not say the video), with the paper's shares: no video, no image stands on both sides.

    Licence: MPII's own, non-commercial research only.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": ("annotations", "images", "split", "test_fraction", "query_fraction"),
        "people": ("full_body", "min_joints", "image_size", "room", "queries"),
    }

    annotations: Path
    """mpii_human_pose_v1_u12_1.mat, or a .json file in the format of HRNet's train.json and valid.json."""
    images: Path
    """Folder of the images."""
    split: Path | None = None
    """File that lists people with their roles; by default the split is by hash."""
    queries: int = 1919
    """Number of test lines of the split file that are queries."""
    full_body: bool = False
    """Keep only people with all 16 joints, as the paper does."""
    min_joints: int = 8
    """People with fewer joints are left out."""
    image_size: int = 288
    """Side of the square crops in pixels."""
    room: float = 1.25
    """Side of a crop's centre box in person heights."""
    test_fraction: float = 0.445
    """Fraction of people held out for testing, if there is no split file."""
    query_fraction: float = 0.1935
    """Fraction of test people that are queries, if there is no split file; the others form the gallery."""

    task = "pose"
    frame = FRAME
    published = "MPII Human Pose, Andriluka et al., CVPR 2014"
    licence = "MPII's own: non-commercial research only"
    minimums: ClassVar[Mapping[str, float]] = {"room": 0.1, "queries": 1}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(
            self, revision=1, files=filter(None, (self.annotations, self.split)), images=self.images
        )

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        listed = None if self.split is None else read_split(self.split, self.queries)
        return pose_content(list(self._make_items(listed)), JOINTS, self.image_size)

    def _make_items(self, listed: Listed | None) -> Iterator[Item | str | DataError]:
        sizes: dict[str, Size] = {}
        used: set[tuple[str, int | None]] = set()

        def make_item(_: str, row: tuple[str, int, Person | DataError]) -> Item | str:
            image, number, person = row
            keys: tuple[tuple[str, int | None], ...] = (image, number), (image, None)
            used.update(keys)
            if isinstance(person, DataError):
                raise person
            if listed is None:
                role = split_by_hash(person.group, self.test_fraction, self.query_fraction)
            else:
                role = next((listed[key][0] for key in keys if key in listed), "")
            return self._item(person, role, sizes) if role else "not in the split file"

        yield from read_each((("", row) for row in read_people(self.annotations)), make_item)
        for key, (_, where) in (listed or {}).items():
            if key not in used:
                who = key[0] if key[1] is None else f"person {key[1]} of {key[0]}"
                yield DataError(f"{where}: {who} is not in {self.annotations}.")

    def _item(self, person: Person, role: str, sizes: dict[str, Size]) -> Item | str:
        """A person's item, or why the person is left out."""
        count, center, tall = int(person.joints[:, 2].sum()), person.center, person.height
        if not count:
            return "without joints"
        if self.full_body and count < len(JOINTS):
            return f"without all {len(JOINTS)} joints"
        if count < self.min_joints:
            return f"fewer than {self.min_joints} joints"
        if center is None or tall is None:
            return "without place or scale"
        photo = file_inside(self.images, person.image, person.where)
        if person.image not in sizes:
            sizes[person.image] = native_size(photo)
        height, width = sizes[person.image]
        check_joints_inside(person.joints, JOINTS, (height, width), person.where)
        side = self.room * tall / _SEEN
        box = box_around(center[0], center[1] + _DOWN * tall, side)
        if side > 10 * max(height, width):
            raise DataError(f"{person.where}: its scale is out of proportion to an image of {width} x {height} pixels.")
        joints = into_crop(person.joints, box, self.image_size)
        placed = joints[joints[:, 2] > 0, :2]
        if not np.any(np.all((placed >= 0) & (placed <= self.image_size), axis=1)):
            raise DataError(f"{person.where}: none of its joints lies in the crop around its annotated middle.")
        name = f"{PurePosixPath(person.image).with_suffix('')}_{person.number}"
        return person_item(name, role, photo, person.joints, box, self.image_size, person.where)
