"""MPII Human Pose: photographs from videos of everyday activities, cut to one person each, with 16 joints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from cml.data.images import Size, native_size
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.joint_checks import check_joints_inside
from cml.data_prep.mpii_annotations import JOINTS, Person, read_people
from cml.data_prep.mpii_split import Listed, read_split
from cml.data_prep.person_crop import FRAME, box_around, into_crop
from cml.data_prep.person_items import person_item, pose_content
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

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
