"""COCO person keypoints: photographs of everyday scenes, cut to one person each, with 17 joints."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from cml.array_types import Float64
from cml.data.images import native_size
from cml.data.prepared_writer import Item
from cml.data_prep.coco_annotations import annotation_files
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.joint_checks import FLAGS, check_flags, check_joints_inside, read_finite
from cml.data_prep.person_crop import FRAME, Box, box_around
from cml.data_prep.person_items import person_item, pose_content
from cml.data_prep.provenance import record_provenance
from cml.data_prep.readers.coco import CocoFile, load_coco
from cml.data_prep.row_errors import read_each
from cml.data_prep.unique_ids import check_unique
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_PAIRS = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
COCO_JOINTS = ("nose", *(f"{side}_{part}" for part in _PAIRS for side in ("left", "right")))
JOINTS = ("nose", *(f"{side}_{part}" for part in _PAIRS for side in ("l", "r")))


@dataclass(frozen=True)
class CocoKeypoints(DatasetSource):
    """COCO: people with 17 joints each, in square crops.

    Command: cml prepare coco_keypoints --source DIR --out DIR

    Input: a folder as COCO's archives unpack: annotations/person_keypoints_train2017.json and .._val2017.json, and the
    images in train2017/ and val2017/. Crowds are left out, so are people that are too small or have too few joints. A
    joint that is hidden but labelled (v = 1) counts as one that is seen (v = 2); one that is not labelled is stored as
    [0, 0, 0]. Joints well outside the photograph make a person a bad one.

    Split: people of the train file are for training, those of the val file are queries and gallery. Where only one of
    the two files is there, its photographs are split by a hash of their names. All people of a photograph have one
    role.

    Licence: annotations CC BY 4.0; the photographs have their owners' Flickr licences.
    """

    source: Path
    """Folder with annotations/ and the image folders."""
    year: int = 2017
    """Year of the files, 2014 or 2017."""
    min_joints: int = 8
    """People with fewer labelled joints are left out."""
    min_area: float = 64.0**2
    """People whose area in the photograph has fewer pixels are left out."""
    margin: float = 0.25
    """Margin around the person's bounding box on each side, as a fraction of its longer side."""
    image_size: int = 288
    """Side of the square crops in pixels."""
    test_fraction: float = 0.3
    """Fraction of photographs held out for testing, if there is only one annotation file."""
    query_fraction: float = 0.2
    """Fraction of test photographs whose people are queries; the others form the gallery."""

    task = "pose"
    frame = FRAME
    published = "COCO person keypoints, Lin et al., ECCV 2014"
    licence = "annotations CC BY 4.0; photographs under their owners' Flickr licences"
    minimums: ClassVar[Mapping[str, float]] = {"min_area": 0}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = annotation_files(self.source, self.year, "person_keypoints")
        return record_provenance(self, revision=1, files=files.values(), images=[self.source / name for name in files])

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        files = annotation_files(self.source, self.year, "person_keypoints")
        people = [item for name, path in files.items() for item in self._make_items(path, name, len(files) == 1)]
        return pose_content(people, JOINTS, self.image_size, {"name": f"coco-keypoints-{self.year}"})

    def _make_items(self, path: Path, folder: str, alone: bool) -> Iterator[Item | str | DataError]:
        coco, people = read_coco(path)
        rows = ((f"{path}: annotation {person.get('id')}", person) for person in people)
        return read_each(rows, partial(self._item, coco, folder, alone))

    def _item(self, coco: CocoFile, folder: str, alone: bool, where: str, person: dict[str, Any]) -> Item | str:
        """A person's item, or why the person is left out."""
        if person.get("iscrowd"):
            return "crowds"
        joints, area = read_joints(person, where), person.get("area")
        if int(joints[:, 2].sum()) < self.min_joints:
            return f"fewer than {self.min_joints} joints"
        if isinstance(area, bool) or not isinstance(area, int | float):
            raise DataError(f"{where}: the area should be a number. Got {area!r} instead.")
        if area < self.min_area:
            return f"fewer than {self.min_area:g} pixels"
        photo = coco.find_photo(person) or {}
        name = photo.get("file_name")
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: no entry of images has its image_id {person.get('image_id')!r}.")
        file, stem = file_inside(self.source / folder, name, where), PurePosixPath(name).stem
        size = native_size(file)
        if size != (photo.get("height"), photo.get("width")):
            listed_size = f"{photo.get('width')} x {photo.get('height')}"
            raise DataError(
                f"{where}: the image {file} has {size[1]} x {size[0]} pixels, but should have {listed_size}."
            )
        box = person_square(person, self.margin, where)
        check_joints_inside(joints, JOINTS, size, f"{where}, image {file}")
        held = self.test_fraction if alone else 1.0
        role = "train" if folder.startswith("train") and not alone else split_by_hash(stem, held, self.query_fraction)
        return person_item(f"{stem}_{person['id']}", role, file, joints, box, self.image_size, where)


def read_coco(path: Path) -> tuple[CocoFile, list[dict[str, Any]]]:
    """Read an annotation file of person keypoints, and choose the annotations of people."""
    coco = load_coco(path)
    ids = [entry.get("id") for entry in coco.categories if entry.get("keypoints") == list(COCO_JOINTS)]
    if not ids:
        raise DataError(f"{path} has no category with COCO's 17 keypoints; it should be a person_keypoints_*.json.")
    check_unique((entry.get("id") for entry in coco.annotations), f"{path}: the annotation id")
    return coco, [entry for entry in coco.annotations if entry.get("category_id") in ids]


def read_joints(
    # the annotation, whose keypoints are 17 times x, y and a flag: 0 not labelled, 1 hidden, 2 visible
    person: dict[str, Any],
    where: str,
) -> Float64:
    """Read the joints of an annotation.

    Returns (17, 3): x and y in pixels, 0 at the outer edge of the first pixel, and 1; all 0 for a joint that is not
    labelled.
    """
    numbers = read_finite(person.get("keypoints"), (3 * len(JOINTS),), f"{where}: keypoints")
    joints = numbers.reshape(len(JOINTS), 3)
    flags = joints[:, 2]
    check_flags(flags, FLAGS, f"{where}: the third number of a joint")
    joints[:, :2] += 0.5  # COCO counts pixels from 0 and means their middles
    joints[flags == 0] = 0
    flags[flags == 2] = 1
    return joints


def person_square(
    person: dict[str, Any],  # the annotation, whose bbox is [x, y, width, height] in pixels
    margin: float,
    where: str,
) -> Box:  # the square, in pixels of the photograph
    """Return the square around a person."""
    x, y, width, height = read_finite(person.get("bbox"), (4,), f"{where}: bbox")
    if min(width, height) <= 0:
        raise DataError(f"{where}: the bbox should have a width and a height above 0. Got {width:g} and {height:g}.")
    return box_around(x + width / 2, y + height / 2, max(width, height, 1) * (1 + 2 * margin))
