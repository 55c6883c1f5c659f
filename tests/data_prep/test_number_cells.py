"""What the cells and the names of columns of a user's table say: marks, units, orders, flags and missing values."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import cml
from cml import distances
from cml.data.prepared import ROLES, PreparedDataset
from cml.data_prep.number_format import NumberFormat
from cml.data_prep.row_files import suggest_mend
from cml.data_prep.sources.folder import Folder
from cml.errors import DataError, UserError

COUNT = 12


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(COUNT):
        Image.new("RGB", (200, 300), (number * 20, 99, 5)).save(folder / f"{number:02d}.png")
    return folder


def write_labels(folder: Path, header: str, cells: Sequence[str]) -> Path:
    path = folder / "labels.csv"
    lines = [f"{number:02d}.png{';' if ';' in header else ','}{cell}" for number, cell in enumerate(cells)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_people(folder: Path, joints: Sequence[Any]) -> Path:
    path = folder / "people.jsonl"
    rows = [{"file_name": f"{number:02d}.png", "keypoints": person} for number, person in enumerate(joints)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labels_of(dataset: PreparedDataset) -> list[Any]:
    """The labels in the order of the images' names."""
    splits = [dataset.split(role) for role in ROLES[: 2 if dataset.info.queries_are_gallery else 3]]
    return [
        label for _, label in sorted((n, x) for one in splits for n, x in zip(one.item_ids, one.labels, strict=True))
    ]


@pytest.mark.parametrize(
    ("cell", "mend"),
    [
        ("", "the cell is empty: fill it, or delete the line"),
        ("NaN", "the number is missing"),
        ("n/a", "the number is missing"),
        ("inf", "an infinite number has no distance"),
        ("12%", 'write the number without the percent sign, and give the unit by --unit "%"'),
        ("1,200", 'it may be 1200 or 1.200: say which by --thousands "," or --decimal ","'),
        ("1,200,300", 'for 1200300 give --thousands ","'),
        ("1,5", 'for a decimal comma give --decimal ","'),
        ("1.200,5", 'for points between thousands give --decimal "," --thousands "."'),
        ("1.200.300", 'for points between thousands give --decimal "," --thousands "."'),
        ("2014-05-31", "a date or time is no number"),
        ("31.5.2014", "a date or time is no number"),
        ("14:30", "a date or time is no number"),
        ("5 kg", 'write the number alone, 5, and give the unit by --unit "kg"'),
        ("$", "for texts take --kind captions or --kind classes"),
        ("true", "for yes and no take --kind classes"),
        ("a dog", "for texts take --kind captions or --kind classes"),
    ],
)
def test_the_mend_fits_what_the_cell_holds(photos: Path, tmp_path: Path, cell: str, mend: str) -> None:
    labels = write_labels(tmp_path, "file_name,value", [*(str(n) for n in range(COUNT - 1)), f'"{cell}"'])
    with pytest.raises(DataError) as caught:
        Folder(photos, labels).prepare(tmp_path / "set")
    assert f"labels.csv:13: value should be a finite number. Got {cell!r} instead; {mend}" in str(caught.value)


def test_no_mend_names_an_option_where_there_is_none() -> None:
    for value in (None, "", "1,200", "1,5", "5 kg", "12%", True, "a dog", math.nan, math.inf):
        assert "--" not in suggest_mend(value, own=False)


@pytest.mark.parametrize(
    ("settings", "cells", "wanted"),
    [
        ({"thousands": ","}, ['"1,200"', '"12,345.5"', "7"], [1200, 12345.5, 7]),
        ({"decimal": ",", "thousands": "."}, ['"1.200,5"', '"1.000"', '"0,25"'], [1200.5, 1000, 0.25]),
        ({"decimal": ","}, ['"1,200"', '"-0,5"', "3"], [1.2, -0.5, 3]),
        ({"thousands": "'"}, ["1'200", "12'345.5", "7"], [1200, 12345.5, 7]),
    ],
)
def test_numbers_are_read_with_the_marks_that_were_named(
    photos: Path, tmp_path: Path, settings: dict[str, Any], cells: list[str], wanted: list[float]
) -> None:
    labels = write_labels(tmp_path, "file_name,value", cells * 4)
    assert labels_of(Folder(photos, labels, **settings).prepare(tmp_path / "set")) == wanted * 4


@pytest.mark.parametrize(("settings", "cell"), [({"thousands": ","}, "1,20"), ({"decimal": ","}, "1.5,2")])
def test_marks_at_wrong_places_are_refused(photos: Path, tmp_path: Path, settings: dict[str, Any], cell: str) -> None:
    labels = write_labels(tmp_path, "file_name,value", [f'"{cell}"'] * COUNT)
    with pytest.raises(DataError, match="value should be a finite number"):
        Folder(photos, labels, **settings).prepare(tmp_path / "set")


@given(st.floats(-1e9, 1e9).map(lambda number: round(number, 3)))
def test_a_number_written_with_marks_is_read_back(number: float) -> None:
    english = f"{number:,.3f}"
    german = english.translate(str.maketrans(",.", ".,"))
    assert float(NumberFormat(thousands=",").to_plain(english) or "nan") == number
    assert float(NumberFormat(decimal=",", thousands=".").to_plain(german) or "nan") == number


def test_one_mark_for_both_is_refused(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'decimal' and 'thousands' should differ"):
        Folder(photos, write_labels(tmp_path, "file_name,value", ["1"] * COUNT), decimal=",", thousands=",")


def test_columns_of_vectors_take_the_same_marks(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a;b;age\n" + "".join(f"{n},5;1.00{n % 10},25;{n},5\n" for n in range(20)))
    settings = {"features": ("a", "b"), "label_columns": ("age",), "decimal": ",", "thousands": "."}
    dataset = cml.prepare("table", tmp_path / "set", source=path, **settings)
    vectors = dataset.split("train").vectors
    assert vectors is not None
    rows = vectors.read(np.arange(len(vectors)))
    ages = np.asarray(dataset.split("train").labels)
    np.testing.assert_array_equal(rows[:, 0], ages.astype(np.float32))
    np.testing.assert_array_equal(rows[:, 1], (1000 + (ages - 0.5) % 10 + 0.25).astype(np.float32))


@pytest.mark.parametrize("columns", [("file_name", "value"), ("00.png", "0")])
def test_a_file_without_a_header_is_no_dataset_of_one_image_fewer(
    photos: Path, tmp_path: Path, columns: tuple[str, str]
) -> None:
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{number:02d}.png,{number}\n" for number in range(COUNT)))
    with pytest.raises(DataError, match=r"labels.csv:1: .* line with the names of the columns above it"):
        Folder(photos, path, file_column=columns[0], label_columns=columns[1:]).prepare(tmp_path / "set")


def test_numbers_as_names_of_columns_are_no_missing_header(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("0,1,age\n" + "".join(f"{n},{n * n},{n}\n" for n in range(20)))
    dataset = cml.prepare("table", tmp_path / "set", source=path, features=("0", "1"), label_columns=("age",))
    assert sum(dataset.info.counts.values()) == 20


def test_the_names_of_columns_decide_which_is_the_latitude(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = write_labels(tmp_path, "file_name,lng,lat", [f"{11 + n / 10},{48 + n / 100}" for n in range(COUNT)])
    dataset = Folder(photos, labels, kind="place", label_columns=("lng", "lat")).prepare(tmp_path / "set")
    assert labels_of(dataset)[3] == [48.03, 11.3]
    assert dataset.info.details["label_columns"] == ["lat", "lng"]
    assert "The label is lat, lng, in this order" in capsys.readouterr().err


@pytest.mark.parametrize("columns", [("longitude", "b"), ("a", "lat"), ("lon", "lon2")])
def test_a_place_whose_names_contradict_is_refused(photos: Path, tmp_path: Path, columns: tuple[str, str]) -> None:
    labels = write_labels(tmp_path, f"file_name,{','.join(columns)}", ["1,2"] * COUNT)
    with pytest.raises(UserError, match="The label of a place is latitude, longitude: name the columns in this order"):
        Folder(photos, labels, kind="place", label_columns=columns)


def test_a_latitude_beyond_the_pole_asks_about_the_order(photos: Path, tmp_path: Path) -> None:
    labels = write_labels(tmp_path, "file_name,a,b", ["139.7,35.7"] * COUNT)
    with pytest.raises(DataError, match=r"-90..90 degrees\. Got 139.7 instead; are latitude and longitude swapped"):
        Folder(photos, labels, kind="place", label_columns=("latitude=a", "longitude=b")).prepare(tmp_path / "set")


@pytest.mark.parametrize(("column", "unit"), [("angle_rad", ""), ("heading [rad]", ""), ("angle", "radians")])
def test_angles_in_radians_have_the_period_of_radians(photos: Path, tmp_path: Path, column: str, unit: str) -> None:
    angles = np.linspace(-3.1, 3.1, COUNT)
    labels = write_labels(tmp_path, f"file_name,{column}", [repr(float(angle)) for angle in angles])
    dataset = Folder(photos, labels, kind="angle", label_columns=(column,), unit=unit).prepare(tmp_path / "set")
    assert dataset.info.label_unit == "radians"
    distance = distances.get(dataset.info.details["label_distance"])
    between = distance.pairwise(distance.fit([0.0]).encode([-3.1]), distance.encode([3.1]))
    assert float(np.asarray(between).item()) == pytest.approx(2 * math.pi - 6.2, abs=1e-6)


@pytest.mark.parametrize(("names", "unit"), [(("yaw", "pitch", "roll"), "radians"), (("y_rad", "p_rad", "r_rad"), "")])
def test_euler_angles_in_radians_are_stored_as_degrees(
    photos: Path, tmp_path: Path, names: tuple[str, ...], unit: str
) -> None:
    labels = write_labels(tmp_path, f"file_name,{','.join(names)}", [f"{math.pi / 2!r},0.5,-0.25"] * COUNT)
    dataset = Folder(photos, labels, kind="rotation", label_columns=names, unit=unit).prepare(tmp_path / "set")
    assert labels_of(dataset)[0] == pytest.approx([90, math.degrees(0.5), math.degrees(-0.25)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "angle", "label_columns": ("a_rad",), "unit": "degrees"}, "says radians, but the unit is 'degrees'"),
        (
            {"kind": "rotation", "label_columns": ("yaw_rad", "pitch", "roll")},
            "'yaw_rad' says radians, but 'pitch' does",
        ),
        ({"kind": "rotation", "label_columns": ("x", "y", "z", "w"), "unit": "radians"}, "Radians belong to Euler"),
        ({"kind": "place", "unit": "km"}, "The unit of a label of kind 'place' is degrees or radians. Got 'km'"),
    ],
)
def test_units_that_contradict_are_refused(
    photos: Path, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    labels = write_labels(tmp_path, "file_name,value", ["1"] * COUNT)
    with pytest.raises(UserError, match=message):
        Folder(photos, labels, **settings)


def person(*, missing: list[Any] | None = None, third: float | None = None, seed: int = 0) -> list[Any]:
    joints = np.random.default_rng(seed).uniform(30, 180, (6, 2)).round(1).tolist()
    if missing is not None:
        joints[1] = missing
    return [[*joint, third] if third is not None and len(joint) == 2 else joint for joint in joints]


@pytest.mark.parametrize("missing", [[0, 0], [-1, -1], [None, None], [0, 0, 0], [None, None, 0]])
def test_a_joint_that_was_not_seen_is_hidden(
    photos: Path, tmp_path: Path, missing: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    people = write_people(tmp_path, [person(missing=missing, seed=n) for n in range(COUNT)])
    dataset = Folder(photos, people, kind="keypoints").prepare(tmp_path / "set")
    joints = np.asarray(labels_of(dataset))
    assert (joints[:, 1] == 0).all()
    assert (joints[:, [0, 2, 3, 4, 5], 2] == 1).all()
    assert ("are taken as hidden" in capsys.readouterr().err) == (missing in ([0, 0], [-1, -1]))


def test_a_joint_at_the_corner_that_is_marked_visible_is_kept(photos: Path, tmp_path: Path) -> None:
    people = write_people(tmp_path, [person(missing=[0, 0, 1], seed=n) for n in range(COUNT)])
    joints = np.asarray(labels_of(Folder(photos, people, kind="keypoints").prepare(tmp_path / "set")))
    assert (joints[:, 1, 2] == 1).all()


def test_confidences_need_a_threshold(photos: Path, tmp_path: Path) -> None:
    joints = [person(missing=[50, 60, 0.03], third=0.9, seed=n) for n in range(COUNT)]
    people = write_people(tmp_path, joints)
    with pytest.raises(DataError, match=r"0, 1 or 2\. Got 0\.9 instead; 0 means hidden.* --min-confidence 0\.3"):
        Folder(photos, people, kind="keypoints").prepare(tmp_path / "set")
    stored = np.asarray(
        labels_of(Folder(photos, people, kind="keypoints", min_confidence=0.3).prepare(tmp_path / "set"))
    )
    assert (stored[:, 1] == 0).all()
    assert (stored[:, [0, 2, 3, 4, 5], 2] == 1).all()


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.01])
def test_joints_within_one_pixel_are_refused(photos: Path, tmp_path: Path, scale: float) -> None:
    shares = [(np.random.default_rng(n).uniform(0.1, 1, (6, 2)) * scale).tolist() for n in range(COUNT)]
    with pytest.raises(DataError, match="between 0 and 1; they seem to be fractions of width and height"):
        Folder(photos, write_people(tmp_path, shares), kind="keypoints").prepare(tmp_path / "set")
