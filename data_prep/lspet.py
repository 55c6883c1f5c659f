"""Leeds Sports Pose (Extended): photographs of people doing sports, cut to one person each, with 14 joints.

Not for: other pose sets, whose joints have other names and order.
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.data.images import native_size, read_image
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.errors import DataError, UserError
from data_prep.source import check_shares, made_with, role_by_hash

JOINTS = (
    *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle"),
    *("r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist"),
    *("neck", "head_top"),
)
Float64 = NDArray[np.float64]


class Box(NamedTuple):
    """A square in an image, in pixels: x of its left side, y of its top side, and its side."""

    left: float
    top: float
    side: float


@dataclass(frozen=True)
class Lspet:
    """People doing sports with 14 joints each, cropped from the Leeds Sports Pose Extended photographs.

    Command: cml prepare lspet --source DIR --out DIR

    Input: a folder with joints.mat (variable joints, 14 x 3 x N or 3 x 14 x N: x, y, visible) and images/im00001.jpg,
    .. in the same order. Hidden joints hold junk in joints.mat; they are stored as [0, 0, 0]. So are joints that are
    said to be visible but lie outside the photograph.

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with joints.mat and images/."""
    image_size: int = 288
    """Side of the square crops in pixels."""
    margin: float = 0.25
    """Room around the visible joints on each side, as a share of the longer side of their bounding box."""
    min_joints: int = 8
    """People with fewer visible joints are left out."""
    test_share: float = 0.4
    """Share of the people that are not for training. The role depends on the photograph's name alone."""
    query_share: float = 0.35
    """Share of the test people that are queries; the others are the gallery."""
    third_number: Literal["visible", "occluded"] = "visible"
    """What a joint's third number says: 1 = visible (LSP Extended) or 1 = occluded (the first LSP)."""

    def __post_init__(self) -> None:
        check_shares(test_share=self.test_share, query_share=self.query_share)
        for name, value, least in (
            ("image_size", self.image_size, 16),
            ("margin", self.margin, 0),
            ("min_joints", self.min_joints, 2),
        ):
            if not least <= value < math.inf:
                raise UserError(f"The {name} should be at least {least}. Got {value} instead.")

    def prepare(self, out: Path) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        origin = made_with(self, revision=1, files=[self.source / "joints.mat"], images=self.source / "images")
        if (done := already_prepared(out, origin)) is not None:
            return done
        joints = read_joints(self.source / "joints.mat", self.third_number)
        photos = _photos(self.source / "images", len(joints))
        outside = sum(_hide_outside(person, photo) for person, photo in zip(joints, photos, strict=True))
        kept = np.flatnonzero(joints[:, :, 2].sum(axis=1) >= self.min_joints)
        info = DatasetInfo(
            name="lspet",
            task="pose",
            label_column="keypoints",
            label_unit="px",
            frame="pixels of the crop: x to the right, y down, 0 at the outer edge of the first pixel",
            source="Leeds Sports Pose, Johnson and Everingham, BMVC 2010 and CVPR 2011",
            licence="none stated; research use only",
            details={
                "joints": list(JOINTS),
                "image_size": [self.image_size, self.image_size],
                "left_out": {f"fewer than {self.min_joints} visible joints": len(joints) - len(kept)},
                "joints_outside_the_photograph": outside,
            },
            made_with=origin,
        )
        items = (self._item(photos[person], joints[person]) for person in kept)
        return write_dataset(out, info, items, total=len(kept))

    def _item(self, photo: Path, joints: Float64) -> Item:
        box = person_box(joints, self.margin)
        return Item(
            item_id=photo.stem,
            role=role_by_hash(photo.stem, self.test_share, self.query_share),
            image=functools.partial(_crop_file, photo, box, self.image_size),
            label=into_crop(joints, box, self.image_size).round(2),
            extra={"crop": [round(value, 2) for value in box]},
            where=str(photo),
        )


def read_joints(path: Path, third_number: str = "visible") -> Float64:
    """Read joints.mat.

    Args:
        path: The file.
        third_number: What a joint's third number says, "visible" or "occluded".

    Returns:
        (N, 14, 3) float64: x and y in pixels of the photograph and 1 if visible; hidden joints are all 0.

    Raises:
        DataError: the file is no such .mat file, or a visible joint has no finite place.
    """
    from scipy.io import loadmat

    try:
        joints: Any = loadmat(path, variable_names=["joints"])["joints"]
    except KeyError:
        raise DataError(f"{path} should hold a variable 'joints', but has none.") from None
    except Exception as error:  # on broken bytes scipy raises whatever they lead it to
        raise DataError(f"{path} cannot be read as a .mat file: {error}. Fetch it again.") from None
    if joints.ndim == 3 and joints.shape[:2] == (3, len(JOINTS)):
        joints = joints.swapaxes(0, 1)
    if joints.ndim != 3 or joints.shape[:2] != (len(JOINTS), 3) or joints.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: joints should be numbers of shape 14 x 3 x N or 3 x 14 x N. "
            f"Got {' x '.join(map(str, joints.shape))} of {joints.dtype} instead."
        )
    people: Float64 = np.ascontiguousarray(joints.transpose(2, 0, 1), np.float64)  # (N, 14, 3)
    flags = people[:, :, 2]
    if not np.isin(flags, (0, 1)).all():
        person, joint = np.argwhere(~np.isin(flags, (0, 1)))[0]
        raise DataError(
            f"{path}: the third number of a joint should be 0 or 1. "
            f"Got {flags[person, joint]} for {JOINTS[joint]} of person {person + 1} instead."
        )
    flags[...] = flags == (third_number == "visible")
    people[flags == 0] = 0
    if not np.isfinite(people).all():
        person, joint, _ = np.argwhere(~np.isfinite(people))[0]
        raise DataError(f"{path}: {JOINTS[joint]} of person {person + 1} is visible but its place is not finite.")
    return people


def person_box(joints: Float64, margin: float) -> Box:
    """The square around the visible ones of (J, 3) joints, with ``margin`` times its side added on each side."""
    places = joints[joints[:, 2] > 0, :2]
    low, high = places.min(axis=0), places.max(axis=0)
    side = max(float((high - low).max()) * (1 + 2 * margin), 1.0)
    left, top = (low + high) / 2 - side / 2
    return Box(float(left), float(top), side)


def into_crop(joints: Float64, box: Box, size: int) -> Float64:
    """Move (J, 3) joints from the photograph into the crop of ``size`` pixels; hidden ones stay all 0."""
    moved = joints.copy()
    moved[:, :2] = (joints[:, :2] - (box.left, box.top)) * (size / box.side)
    moved[joints[:, 2] == 0] = 0
    return moved


def crop(image: NDArray[np.uint8], box: Box, size: int) -> Image.Image:
    """Cut ``box`` out of an image and resize it with antialiasing.

    Args:
        image: (H, W, 3). What the box covers outside of it repeats its border pixels.
        box: Need not lie on whole pixels.
        size: Side of the crop in pixels.
    """
    height, width = image.shape[:2]
    x, y = math.floor(box.left), math.floor(box.top)
    columns = np.arange(x, math.ceil(box.left + box.side)).clip(0, width - 1)
    rows = np.arange(y, math.ceil(box.top + box.side)).clip(0, height - 1)
    patch = Image.fromarray(image[rows[:, None], columns])
    left, top = box.left - x, box.top - y
    right, bottom = min(left + box.side, len(columns)), min(top + box.side, len(rows))
    return patch.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, right, bottom))


def _crop_file(photo: Path, box: Box, size: int) -> Image.Image:
    return crop(read_image(photo), box, size)


def _photos(folder: Path, people: int) -> list[Path]:
    """The photograph of each person: number 1 of the names is the first person."""
    numbered: dict[int, Path] = {}
    for path in folder.glob("im*.jpg"):
        if (match := re.fullmatch(r"im(\d+)\.jpg", path.name)) is not None:
            numbered[int(match[1])] = path
    missing = [number for number in range(1, people + 1) if number not in numbered]
    if missing or len(numbered) != people:
        what = f"im{missing[0]:05d}.jpg is missing" if missing else f"there are {len(numbered)} photographs"
        raise DataError(f"{folder}: joints.mat has {people} people, but {what}. Fetch the dataset again.")
    return [numbered[number] for number in range(1, people + 1)]


def _hide_outside(joints: Float64, photo: Path) -> int:
    """Hide the visible joints of one person that lie outside the photograph; give their number."""
    height, width = native_size(photo)
    slack = 0.02 * max(height, width)  # a click just beside the border means the border
    places = joints[:, :2]
    outside = ((places < -slack) | (places > np.array([width, height]) + slack)).any(axis=1) & (joints[:, 2] > 0)
    joints[outside] = 0
    return int(outside.sum())
