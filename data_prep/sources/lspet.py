"""Leeds Sports Pose (Extended): photographs of people doing sports, cut to one person each, with 14 joints."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cml.array_types import Float64
from cml.data.images import native_size
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.joint_checks import check_flags, check_in_pixels, outside_photo
from cml.data_prep.mat_file import read_variable
from cml.data_prep.person_crop import FRAME, person_box
from cml.data_prep.person_items import person_item
from cml.data_prep.provenance import record_provenance
from cml.errors import DataError

JOINTS = (
    *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle"),
    *("r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist"),
    *("neck", "head_top"),
)


@dataclass(frozen=True)
class Lspet(DatasetSource):
    """Leeds Sports Pose Extended: people doing sports with 14 joints each, in square crops.

    Command: cml prepare lspet --source DIR --out DIR

    Input: a folder with joints.mat (variable joints, 14 x 3 x N or 3 x 14 x N: x, y, visible) and images/im00001.jpg,
    ... in the same order. Hidden joints hold junk in joints.mat; they are stored as [0, 0, 0]. So are joints that are
    said to be visible but lie outside the photograph.

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with joints.mat and images/."""
    image_size: int = 288
    """Side of the square crops in pixels."""
    margin: float = 0.25
    """Margin around the visible joints on each side, as a fraction of the longer side of their bounding box."""
    min_joints: int = 8
    """People with fewer visible joints are left out."""
    test_fraction: float = 0.4
    """Fraction of people held out for testing. The role depends only on the name of the photograph."""
    query_fraction: float = 0.35
    """Fraction of test people that are queries; the others form the gallery."""
    third_number: Literal["visible", "occluded"] = "visible"
    """Meaning of a joint's third number: 1 = visible (LSP Extended) or 1 = occluded (the original LSP)."""

    task = "pose"
    frame = FRAME
    published = "Leeds Sports Pose, Johnson and Everingham, BMVC 2010 and CVPR 2011"
    licence = "none stated; research use only"

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, files=[self.source / "joints.mat"], images=self.source / "images")

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        people = read_joints(self.source / "joints.mat", self.third_number)
        photos = _photos(self.source / "images", len(people))
        items: list[Item | DataError] = []
        outside = 0
        for number, joints in enumerate(people, start=1):
            try:
                photo = self._find_photo(photos, number, joints)
                check_in_pixels(joints, f"{self.source / 'joints.mat'}: person {number}")
                beyond = outside_photo(joints, native_size(photo))
            except DataError as error:
                items.append(error)
                continue
            joints[beyond] = 0
            outside += int(beyond.sum())
            if joints[:, 2].sum() >= self.min_joints:
                box = person_box(joints, self.margin)
                role = split_by_hash(photo.stem, self.test_fraction, self.query_fraction)
                items.append(person_item(photo.stem, role, photo, joints, box, self.image_size, str(photo)))
        left_out = {f"fewer than {self.min_joints} visible joints": len(people) - len(items)}
        details = {"joints": list(JOINTS), "image_size": [self.image_size] * 2}
        return Content(items, details | {"left_out": left_out, "joints_outside_the_photograph": outside})

    def _find_photo(self, photos: dict[int, Path], number: int, joints: Float64) -> Path:
        """The photograph of a person whose numbers make sense."""
        where = f"{self.source / 'joints.mat'}: person {number}"
        if number not in photos:
            raise DataError(f"{where}: the photograph {self.source / 'images' / f'im{number:05d}.jpg'} is missing.")
        flags = joints[:, 2] if self.third_number == "visible" else 1 - joints[:, 2]
        check_flags(flags, (0, 1), f"{where}: the third number of", names=JOINTS)
        for name, (x, y, flag) in zip(JOINTS, joints, strict=True):
            if flag and not (math.isfinite(x) and math.isfinite(y)):
                raise DataError(f"{where}: {name} is visible but its place is not finite.")
        return photos[number]


def read_joints(path: Path, third_number: str = "visible") -> Float64:
    """The joints of joints.mat, (N, 14, 3): x, y in pixels and 1 if visible, hidden ones all 0; not yet checked."""
    joints = read_variable(path, "joints")
    if joints.ndim == 3 and joints.shape[:2] == (3, len(JOINTS)):
        joints = joints.swapaxes(0, 1)
    if joints.ndim != 3 or joints.shape[:2] != (len(JOINTS), 3) or joints.dtype.kind not in "fiu":
        got = f"{' x '.join(map(str, joints.shape))} of {joints.dtype}"
        raise DataError(f"{path}: joints should be numbers of shape 14 x 3 x N or 3 x 14 x N. Got {got} instead.")
    people: Float64 = np.ascontiguousarray(joints.transpose(2, 0, 1), np.float64)  # (N, 14, 3)
    flags = people[:, :, 2]
    if third_number == "occluded":
        flags[...] = 1 - flags
    people[flags == 0] = 0
    return people


def _photos(folder: Path, people: int) -> dict[int, Path]:
    """The photographs by the number in their names: number 1 is the first person's."""
    named = ((re.fullmatch(r"im(\d+)\.jpg", path.name), path) for path in folder.glob("im*.jpg"))
    numbered = {int(match[1]): path for match, path in named if match}
    if numbered and max(numbered) > people:
        raise DataError(f"{folder}: joints.mat has {people} people, but there is {numbered[max(numbered)].name}.")
    if not numbered:
        raise DataError(f"{folder}: there are no photographs im00001.jpg, ... in it.")
    return numbered
