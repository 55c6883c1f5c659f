"""Published photographs of numbers: AgeDB (ages), Biwi (rotations), ELPV (defects), MSLS (places of cameras)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.spatial.transform import Rotation

from cml.data.image_files import Picture
from cml.data_prep.listed import Listed, ListedSource, read_each, split_lines, table_rows, within
from cml.data_prep.person_crop import Box, Float64, box_around, crop_file
from cml.data_prep.source import dealt, role_by_hash, text_lines
from cml.data_prep.table import Row, number
from cml.errors import DataError, extra_needed

_AGE_ROLES = {"train": "train", "val": "", "test": "query"}
_OLDEST = 120  # years
_CELLS = ("mono", "poly")
_AGAIN = {"15": "03", "18": "05", "21": "02", "22": "07"}  # recorded twice: the sequence that shows the same person
_OFF = 1e-2  # how far a matrix may be from orthogonal; the files have five digits
_FARTHEST = 100  # a head this many times its own size off the frame's middle is none
_HELD = ("cph", "sf")  # the published validation cities, Copenhagen and San Francisco
_PARTS = {"query": "query", "database": "gallery"}
_BOUNDS = {"lat": (-90, 90), "lon": (-180, 180), "ca": (-360, 360)}  # degrees


@dataclass(frozen=True)
class Agedb(ListedSource):
    """Faces of AgeDB with their ages, split as AgeDB-DIR: training ages as they come, test ages balanced.

    Command: cml prepare agedb --source agedb --out DIR

    Input: a folder with agedb.csv (columns age, path, split; from github.com/YyzHarry/imbalanced-regression, folder
    agedb-dir/data) and the photographs in AgeDB/, from ibug.doc.ic.ac.uk/resources/agedb, whose makers give the
    archive's password on request. 12,208 photographs train; 2,140 test ones are queries that are searched among each
    other; those of "val" are left out.

    Licence: non-commercial research only, by agreement with AgeDB's makers.
    """

    published = "AgeDB, Moschoglou and others, CVPRW 2017; split AgeDB-DIR, Yang and others, ICML 2021"
    licence = "non-commercial research only, by agreement with its makers"
    label_unit = "years"
    lists = ("agedb.csv",)
    images = "AgeDB"

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        return read_each(table_rows(lists[0], ("age", "path", "split")), self._line)

    def _line(self, where: str, row: Row) -> Listed:
        if row["split"] not in _AGE_ROLES:
            raise DataError(f"{where}: split should be one of {', '.join(_AGE_ROLES)}. Got {row['split']!r}.")
        return Listed(where, row["path"], within(row["age"], "age", where, 0, _OLDEST), _AGE_ROLES[row["split"]])


@dataclass(frozen=True)
class Elpv(ListedSource):
    """2,624 photographs of solar cells, each with the probability that the cell is defective.

    Command: cml prepare elpv --out DIR

    Input: none with the extra 'elpv' (pip install elpv-dataset); otherwise --source names the folder with labels.csv
    and images/, as github.com/zae-bayern/elpv-dataset has it. Labels are 0, 1/3, 2/3 and 1; whether a cell is mono-
    or polycrystalline is the column "cell".

    Split: at random, by a hash of each name: which cells were cut out of the same module is not published. Every test
    image is a query that is searched among all other test images.

    Licence: CC BY-NC-SA 4.0.
    """

    source: Path | None = None  # type: ignore[assignment]
    """The folder with labels.csv; that of the installed package when not given."""
    test_share: float = 0.3
    """Share of the photographs that are not for training."""

    published = "ELPV, Deitsch and others, Solar Energy 185, 2019; Buerhop-Lutz and others, EU PVSEC 2018"
    licence = "CC BY-NC-SA 4.0"
    label_unit = "defect probability"
    images = "images"

    def _files(self) -> tuple[list[Path], Path]:
        folder = self.source
        if folder is None:
            with extra_needed("elpv", "The package of photographs elpv-dataset"):
                import elpv_dataset
            folder = Path(elpv_dataset.__file__).parent / "data"
        return [folder / "labels.csv"], folder

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        return read_each(split_lines(lists[0]), self._line)

    def _line(self, where: str, words: list[str]) -> Listed:
        if len(words) != 3 or words[2] not in _CELLS:
            got = " ".join(words)
            raise DataError(f"{where}: should be a path, a probability and {' or '.join(_CELLS)}. Got {got!r}.")
        value = within(words[1], "the probability", where, 0, 1)
        return Listed(where, words[0], value, role_by_hash(words[0], self.test_share, 1.0), {"cell": words[2]})


@dataclass(frozen=True)
class Msls(ListedSource):
    """Street photographs of MSLS with latitude, longitude and heading, compared by how much of the view they share.

    Command: cml prepare msls --source MSLS --out DIR

    Input: the unpacked folder (mapillary.com/dataset/places) with train_val/CITY/query and train_val/CITY/database,
    each with raw.csv (columns key, lat, lon, ca, pano) and images/KEY.jpg. Panoramas are left out.

    Split: as published. Copenhagen and San Francisco test, their queries are searched in their databases; all
    photographs of the other cities train.

    Licence: CC BY-NC-SA 4.0, as Mapillary grants it for research.
    """

    cities: tuple[str, ...] = ()
    """Folder names of the cities to take; all when not given."""

    published = "Mapillary Street-level Sequences, Warburg and others, CVPR 2020"
    licence = "CC BY-NC-SA 4.0"
    label_unit = "degrees"
    frame = "latitude, longitude, heading clockwise from north"
    details: ClassVar[Mapping[str, Any]] = {"label_distance": "place"}

    def _files(self) -> tuple[list[Path], Path]:
        root = self.source / "train_val"
        names = self.cities or sorted(path.name for path in root.glob("*") if path.is_dir())
        lists = [root / city / part / "raw.csv" for city in names for part in _PARTS]
        return lists or [root / "CITY/query/raw.csv"], root

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        for path in lists:
            read = partial(self._line, path.parts[-3], path.parts[-2])
            yield from read_each(table_rows(path, ("key", *_BOUNDS, "pano")), read)

    def _line(self, city: str, part: str, where: str, row: Row) -> Listed:
        view = [within(row[column], column, where, *bounds) for column, bounds in _BOUNDS.items()]
        role = _PARTS[part] if city in _HELD else "train"
        pano = row["pano"].strip().lower() == "true"
        return Listed(where, f"{city}/{part}/images/{row['key']}.jpg", view, "" if pano else role)


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

    image_size: int = 128
    """Side of the squares cut out, in pixels."""
    millimetres: float = 320.0
    """Side of the square around the head's centre, at the head."""
    test_share: float = 0.3
    """Share of the frames that are not for training, as nearly as whole people allow."""
    split_seed: int = 0
    """Seed that decides which people are held out."""

    published = "Biwi Kinect Head Pose, Fanelli and others, IJCV 2013"
    licence = "non-commercial use such as university research and education"
    label_unit = "rotation"
    frame = "quaternion x, y, z, w from the head to the depth camera"
    details: ClassVar[Mapping[str, Any]] = {"gallery": "queries", "label_distance": "rotation"}

    def _files(self) -> tuple[list[Path], Path]:
        if not (poses := sorted(self.source.glob("[0-9][0-9]/frame_*_pose.txt"))):
            raise DataError(f"{self.source} should have folders 01 to 24 with frame_NNNNN_pose.txt, but has none.")
        return poses, self.source

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        people = {str(path): _AGAIN.get(path.parent.name, path.parent.name) for path in lists}
        held = dealt(people, self.test_share, seed=self.split_seed, salt="test")
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

    def _picture(self, path: Path, one: Listed) -> Picture:
        return partial(crop_file, path, Box(*one.extra["box"]), self.image_size)


def read_numbers(path: Path, wanted: Sequence[int]) -> Float64:
    """Those lines of a text that are ``wanted``, empty ones not counted, each of three finite numbers: (L, 3)."""
    lines, rows = text_lines(path), []
    for place in wanted:
        where, text = lines[place] if place < len(lines) else (str(path), "")
        if len(words := text.split()) != 3:
            raise DataError(f"{where}: should have 3 numbers in line {place + 1}. Got {text.strip()!r} instead.")
        rows.append([number(word, "each", where, own=False) for word in words])
    return np.array(rows)


def head_box(camera: Float64, centre: Float64, millimetres: float, where: Path) -> Box:
    """The square in the colour frame around a head's centre (3,) in mm; ``camera`` (7, 3) is what rgb.cal has."""
    turn = _rotation(camera[3:6], where.with_name("rgb.cal")).as_matrix()
    x, y, depth = camera[:3] @ (turn @ centre + camera[6])
    side = camera[0, 0] * millimetres / depth if depth > 0 else 0.0
    if not side >= 1 or max(abs(x), abs(y)) / depth > _FARTHEST * side:
        raise DataError(f"{where}: the head's centre {centre.tolist()} mm should lie before the camera.")
    return box_around(x / depth, y / depth, side)


def _rotation(matrix: Float64, path: Path) -> Rotation:
    off = float(np.abs(matrix @ matrix.T - np.eye(3)).max())
    if not off <= _OFF or np.linalg.det(matrix) < 0:
        what = "the matrix of 3 by 3 before the last three numbers"
        raise DataError(f"{path}: {what} should be a rotation; it is {off:.2g} off one.")
    return Rotation.from_matrix(matrix)
