"""Biwi Kinect Head Pose: frames of 20 people who turn their heads, with the rotations that depth told.

Not for: its depth images and head models, nor telling where in a frame a head is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from cml.data.image_files import Picture
from cml.data_prep.deal import dealt
from cml.data_prep.listed import Listed, ListedSource
from cml.data_prep.person_crop import Box, box_around, crop_file
from cml.data_prep.source import check_shares, text_lines
from cml.data_prep.table import number
from cml.errors import DataError

Float64 = NDArray[np.float64]

_AGAIN = {"15": "03", "18": "05", "21": "02", "22": "07"}  # recorded twice: the sequence that shows the same person
_OFF = 1e-2  # how far a matrix may be from orthogonal; the files have five digits
_FARTHEST = 100  # a head this many times its own size off the frame's middle is none


class Camera(NamedTuple):
    """What rgb.cal says: intrinsics (3, 3) in pixels, rotation (3, 3) and shift (3,) in mm from the depth camera."""

    pixels: Float64
    turn: Float64
    shift: Float64


@dataclass(frozen=True)
class Biwi(ListedSource):
    """Heads of Biwi Kinect Head Pose with their rotations, cut out of the frames; test people were never seen.

    Command: cml prepare biwi --source hpdb --out DIR

    Input: the unpacked folder hpdb (faces_0) with 01/ to 24/, each with rgb.cal, frame_NNNNN_rgb.png and
    frame_NNNNN_pose.txt; the database is of ETH Zurich (Fanelli and others; on Kaggle as
    biwi-kinect-head-pose-database). A head is cut out around its centre as the colour camera saw it.

    Split: whole people are held out, those recorded twice with both sequences. Every test frame is a query that is
    searched among all others.

    Licence: non-commercial use such as university research and education.
    """

    source: Path
    """The folder with 01/ to 24/."""
    image_size: int = 128
    """Side of the squares cut out, in pixels."""
    millimetres: float = 320.0
    """Side of the square around the head's centre, at the head."""
    test_share: float = 0.3
    """Share of the frames that are not for training, as nearly as whole people allow."""
    split_seed: int = 0
    """Which people."""

    name = "biwi"
    published = "Biwi Kinect Head Pose, Fanelli and others, IJCV 2013"
    licence = "non-commercial use such as university research and education"
    unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the depth camera"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(test_share=self.test_share)

    def _files(self) -> tuple[list[Path], Path]:
        if not (poses := sorted(self.source.glob("[0-9][0-9]/frame_*_pose.txt"))):
            raise DataError(f"{self.source} should have folders 01 to 24 with frame_NNNNN_pose.txt, but has none.")
        return poses, self.source

    def _details(self) -> dict[str, Any]:
        return {"gallery": "queries", "label_distance": "rotation"}

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        people = {f"{path.parent.name}/{path.name}": path.parent.name for path in lists}
        people = {frame: _AGAIN.get(sequence, sequence) for frame, sequence in people.items()}
        held = dealt(people, self.test_share, seed=self.split_seed, salt="test")
        cameras: dict[Path, Camera] = {}
        for path in lists:
            frame = f"{path.parent.name}/{path.name}"
            try:
                calibration = path.with_name("rgb.cal")
                if calibration not in cameras:
                    cameras[calibration] = read_camera(calibration)
                turn, centre = read_pose(path)
                box = head_box(cameras[calibration], centre, self.millimetres, str(path))
            except DataError as error:
                yield error
            else:
                role, image = "query" if frame in held else "train", frame.replace("_pose.txt", "_rgb.png")
                extra = {"person": people[frame], "box": [round(value, 2) for value in box]}
                yield Listed(str(path), image, turn.round(6).tolist(), role, extra)

    def _picture(self, path: Path, one: Listed) -> Picture:
        return functools.partial(crop_file, path, Box(*one.extra["box"]), self.image_size)


def read_pose(path: Path) -> tuple[Float64, Float64]:
    """The quaternion (4,) and the centre (3,) in mm of a head, of a frame_NNNNN_pose.txt.

    Raises:
        DataError: it has not four lines of three finite numbers, or no rotation in the first three.
    """
    rows = _numbers(path, {0: 3, 1: 3, 2: 3, 3: 3})
    return np.asarray(_rotation(rows[:3], path).as_quat(canonical=True)), rows[3]


def read_camera(path: Path) -> Camera:
    """The colour camera, of an rgb.cal.

    Raises:
        DataError: it has other lines, or no rotation among them.
    """
    rows = _numbers(path, {0: 3, 1: 3, 2: 3, 4: 3, 5: 3, 6: 3, 7: 3})
    return Camera(rows[:3], np.asarray(_rotation(rows[3:6], path).as_matrix()), rows[6])


def head_box(camera: Camera, centre: Float64, millimetres: float, where: str) -> Box:
    """The square in the colour frame around a head's centre (3,) in mm before the depth camera.

    Raises:
        DataError: the head is behind the camera, or far out of the frame.
    """
    x, y, depth = camera.pixels @ (camera.turn @ centre + camera.shift)
    side = camera.pixels[0, 0] * millimetres / depth if depth > 0 else 0.0
    if not side >= 1 or max(abs(x), abs(y)) / depth > _FARTHEST * side:
        raise DataError(f"{where}: the head's centre {centre.tolist()} mm should lie before the camera.")
    return box_around(x / depth, y / depth, side)


def _numbers(path: Path, wanted: dict[int, int]) -> Float64:
    """Those lines of a text that are ``wanted``, each with so many finite numbers; empty lines do not count."""
    lines = text_lines(path)
    rows = []
    for place, count in wanted.items():
        where, text = lines[place] if place < len(lines) else (str(path), "")
        if len(words := text.split()) != count:
            raise DataError(f"{where}: should have {count} numbers in line {place + 1}. Got {text.strip()!r} instead.")
        rows.append([number(word, "each", where, own=False) for word in words])
    return np.array(rows)


def _rotation(matrix: Float64, path: Path) -> Rotation:
    off = float(np.abs(matrix @ matrix.T - np.eye(3)).max())
    if not off <= _OFF or np.linalg.det(matrix) < 0:
        raise DataError(
            f"{path}: the matrix of 3 by 3 before the last three numbers should be a rotation; it is {off:.2g} off one."
        )
    return Rotation.from_matrix(matrix)
