"""MPII Human Pose: photographs from videos of everyday activities, cut to one person each, with 16 joints.

Not for: reading its annotation files (mpii_annotations.py), other pose sets, whose joints have other names and order.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cml.data.images import Size, native_size
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.mpii_annotations import JOINTS, Person, read_people
from cml.data_prep.person_crop import FRAME, box_around, check_joints_inside, into_crop, person_item, pose_details
from cml.data_prep.source import made_with, role_by_hash, text_lines
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_SEEN = 224 / 288  # share of a stored crop's side that the pose recipe shows the network
_DOWN = 0.075  # heights from the annotated middle of a person down to the crop's, so that feet are not cut off
Listed = dict[tuple[str, int | None], tuple[str, str]]  # (image, person or None for all) to (role, "FILE:LINE")


@dataclass(frozen=True)
class Mpii(DatasetSource):
    """People of the MPII Human Pose photographs with 16 joints each, cut to square crops.

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

    annotations: Path
    """mpii_human_pose_v1_u12_1.mat, or a .json in the form of HRNet's train.json and valid.json."""
    images: Path
    """Folder of the images."""
    split: Path | None = None
    """File that lists people with their roles; without it the split is by hash."""
    queries: int = 1919
    """How many test lines of the split file are queries."""
    full_body: bool = False
    """Keep only people with all 16 joints, as the paper does."""
    min_joints: int = 8
    """People with fewer joints are left out."""
    image_size: int = 288
    """Side of the square crops in pixels."""
    room: float = 1.25
    """Side of a crop's centre box in person heights."""
    test_share: float = 0.445
    """Without a split file: share of the people that are not for training."""
    query_share: float = 0.1935
    """Without a split file: share of the test people that are queries; the others are the gallery."""

    name = "mpii"
    task = "pose"
    frame = FRAME
    published = "MPII Human Pose, Andriluka et al., CVPR 2014"
    licence = "MPII's own: non-commercial research only"
    least = (("room", 0.1), ("queries", 1))

    def _origin(self) -> dict[str, Any]:
        files = [self.annotations] if self.split is None else [self.annotations, self.split]
        return made_with(self, revision=1, files=files, images=self.images)

    def _content(self, skip_bad: bool, after: ExitStack) -> Content:
        listed = None if self.split is None else read_split(self.split, self.queries)
        left_out: Counter[str] = Counter()
        items = list(self._items(listed, left_out))
        return Content(items, {**pose_details(JOINTS, self.image_size), "left_out": dict(left_out)})

    def _items(self, listed: Listed | None, left_out: Counter[str]) -> Iterator[Item | DataError]:
        sizes: dict[str, Size] = {}
        used: set[tuple[str, int | None]] = set()
        for image, number, person in read_people(self.annotations):
            keys: tuple[tuple[str, int | None], ...] = (image, number), (image, None)
            used.update(keys)
            if isinstance(person, DataError):
                yield person
                continue
            role = next((listed[key][0] for key in keys if listed and key in listed), "")
            if listed is None:
                role = role_by_hash(person.group, self.test_share, self.query_share)
            reason = self._reason(person) if role else "not in the split file"
            if reason is not None:
                left_out[reason] += 1
                continue
            try:
                yield self._item(person, role, sizes)
            except DataError as error:
                yield error
        for key, (_, where) in (listed or {}).items():
            if key not in used:
                who = key[0] if key[1] is None else f"person {key[1]} of {key[0]}"
                yield DataError(f"{where}: {who} is not in {self.annotations}.")

    def _reason(self, person: Person) -> str | None:
        """Why a person is left out, or None."""
        count = int(person.joints[:, 2].sum())
        if not count:
            return "without joints"
        if self.full_body and count < len(JOINTS):
            return f"without all {len(JOINTS)} joints"
        if count < self.min_joints:
            return f"fewer than {self.min_joints} joints"
        return "without place or scale" if person.center is None or person.height is None else None

    def _item(self, person: Person, role: str, sizes: dict[str, Size]) -> Item:
        assert person.center is not None
        assert person.height is not None
        photo = file_inside(self.images, person.image, person.where)
        if person.image not in sizes:
            sizes[person.image] = native_size(photo)
        check_joints_inside(person.joints, JOINTS, sizes[person.image], person.where)
        side = self.room * person.height / _SEEN
        box = box_around(person.center[0], person.center[1] + _DOWN * person.height, side)
        height, width = sizes[person.image]
        if side > 10 * max(height, width):
            raise DataError(f"{person.where}: its scale is out of proportion to an image of {width} x {height} pixels.")
        joints = into_crop(person.joints, box, self.image_size)
        placed = joints[joints[:, 2] > 0, :2]
        if not np.any(np.all((placed >= 0) & (placed <= self.image_size), axis=1)):
            raise DataError(f"{person.where}: none of its joints lies in the crop around its annotated middle.")
        name = f"{PurePosixPath(person.image).with_suffix('')}_{person.number}"
        return person_item(name, role, photo, person.joints, box, self.image_size, person.where)


def read_split(path: Path, queries: int) -> Listed:
    """Read a split file: lines ``IMAGE [PERSON] ROLE``; test lines after the first ``queries`` are the gallery.

    Raises:
        DataError: a line of another form, or the same person twice.
    """
    listed: Listed = {}
    tests = 0
    for where, image, person, role in _split_lines(path):
        if role == "test":
            tests += 1
            role = "query" if tests <= queries else "gallery"
        if (image, person) in listed:
            raise DataError(f"{where}: is already in {listed[image, person][1]}; a person has one line.")
        listed[image, person] = role, where
    if not listed:
        raise DataError(f"{path} lists no people.")
    return listed


def _split_lines(path: Path) -> Iterable[tuple[str, str, int | None, str]]:
    for where, line in text_lines(path):
        words = line.partition("#")[0].split()
        if not words:
            continue
        known = words[-1] in ("train", "query", "gallery", "test")
        counted = len(words) == 2 or (len(words) == 3 and words[1].isdecimal() and int(words[1]) > 0)
        if not known or not counted:
            raise DataError(
                f"{where}: should be IMAGE [PERSON] ROLE with a PERSON from 1 and train, query, gallery or test as the "
                f"ROLE. Got {line.strip()!r} instead."
            )
        yield where, words[0], int(words[1]) if len(words) == 3 else None, words[-1]
