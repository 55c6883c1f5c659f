"""Biwi Kinect Head Pose: frames of 20 people who turn their heads, with rotations measured by a depth camera."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.transform import Rotation

from cml.array_types import Float64
from cml.data.encode_image import Picture
from cml.data_prep.group_split import split_by_group
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.person_crop import Box, box_around, crop_file
from cml.data_prep.row_errors import read_each
from cml.data_prep.row_files import number
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError

_AGAIN = {"15": "03", "18": "05", "21": "02", "22": "07"}  # recorded twice: the sequence that shows the same person


_DEVIATION = 1e-2  # how far a matrix may be from orthogonal; the files have five digits


_FARTHEST = 100  # a head this many times its own size off the frame's middle is none


@dataclass(frozen=True)
class Biwi(ListedSource):
    """Biwi Kinect Head Pose: cropped heads with rotations; test people do not occur in training.

    Command: cml prepare biwi --source hpdb --out DIR

    Input: the unpacked folder hpdb (faces_0) with 01/ to 24/, each with rgb.cal, frame_NNNNN_rgb.png and
    frame_NNNNN_pose.txt; the database is of ETH Zurich (Fanelli and others; on Kaggle as
    biwi-kinect-head-pose-database). A head is cut out around its centre as the colour camera saw it.

    Split: whole people are held out, those recorded twice with both sequences. Every test frame is a query that is
    searched among all others.

    Licence: non-commercial use such as university research and education.
    """

    image_size: int = 128
    """Side of the square crops in pixels."""
    millimetres: float = 320.0
    """Side of the square around the head's centre in millimetres, at the distance of the head."""
    test_fraction: float = 0.3
    """Approximate fraction of frames held out for testing; people are never split."""
    split_seed: int = 0
    """Random seed that determines which people are held out."""

    published = "Biwi Kinect Head Pose, Fanelli and others, IJCV 2013"
    licence = "non-commercial use such as university research and education"
    label_unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the depth camera"
    details: ClassVar[Mapping[str, Any]] = {"gallery": "queries", "label_distance": "rotation"}

    def _files(self) -> tuple[list[Path], Path]:
        if not (poses := sorted(self.source.glob("[0-9][0-9]/frame_*_pose.txt"))):
            raise DataError(f"{self.source} should have folders 01 to 24 with frame_NNNNN_pose.txt, but has none.")
        return poses, self.source

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        people = {str(path): _AGAIN.get(path.parent.name, path.parent.name) for path in lists}
        held = split_by_group(people, self.test_fraction, seed=self.split_seed, salt="test")
        cameras: dict[Path, Float64] = {}

        def frame(where: str, path: Path) -> Listed:
            if (file := path.with_name("rgb.cal")) not in cameras:
                cameras[file] = read_numbers(file, (0, 1, 2, 4, 5, 6, 7))  # between them, the lens's distortion
            pose = read_numbers(path, range(4))
            box = head_box(cameras[file], pose[3], self.millimetres, path)
            turn = _rotation(pose[:3], path).as_quat(canonical=True).round(6).tolist()
            image = f"{path.parent.name}/{path.name.replace('_pose.txt', '_rgb.png')}"
            extra = {"person": people[where], "box": [round(value, 2) for value in box]}
            return Listed(where, image, turn, "query" if where in held else "train", extra)

        return read_each(((str(path), path) for path in lists), frame)

    def _picture(self, path: Path, line: Listed) -> Picture:
        return partial(crop_file, path, Box(*line.extra["box"]), self.image_size)


def read_numbers(
    path: Path,
    wanted: Sequence[int],  # the L lines to read, from 0; blank lines do not count
) -> Float64:  # the numbers, (L, 3)
    """Read some lines of a text file, each of three finite numbers."""
    lines, rows = read_lines(path), []
    for place in wanted:
        where, text = lines[place] if place < len(lines) else (str(path), "")
        if len(words := text.split()) != 3:
            raise DataError(f"{where}: should have 3 numbers in line {place + 1}. Got {text.strip()!r} instead.")
        rows.append([number(word, "each", where, own=False) for word in words])
    return np.array(rows)


def head_box(
    # what rgb.cal holds: the intrinsic matrix, the rotation and the translation in mm from the depth camera to the
    # colour camera, (7, 3)
    camera: Float64,
    centre: Float64,  # centre of the head in the depth camera's frame, in mm, (3,)
    millimetres: float,
    where: Path,
) -> Box:  # the square, in pixels of the colour frame
    """Find the square in the colour frame around a head."""
    turn = _rotation(camera[3:6], where.with_name("rgb.cal")).as_matrix()
    x, y, depth = camera[:3] @ (turn @ centre + camera[6])
    side = camera[0, 0] * millimetres / depth if depth > 0 else 0.0
    if not side >= 1 or max(abs(x), abs(y)) / depth > _FARTHEST * side:
        raise DataError(f"{where}: the head's centre {centre.tolist()} mm should lie before the camera.")
    return box_around(x / depth, y / depth, side)


def _rotation(matrix: Float64, path: Path) -> Rotation:
    subject = "the 3 x 3 matrix before the last three numbers"
    deviation = float(np.abs(matrix @ matrix.T - np.eye(3)).max())
    if not deviation <= _DEVIATION:
        fault = f"its product with its transpose deviates from the identity by {deviation:.2g}"
        raise DataError(f"{path}: {subject} should be a rotation, but {fault}.")
    if np.linalg.det(matrix) < 0:
        raise DataError(f"{path}: {subject} should be a rotation, but it is a reflection.")
    return Rotation.from_matrix(matrix)
