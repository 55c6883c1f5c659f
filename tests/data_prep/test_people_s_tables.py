"""Tables as people have them: what they mean is read by their names, printed, and refused where it stays open.

Each kind of mistake is drawn with 12 and with 100 rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

import cml
from cml.data.prepared import PreparedDataset
from cml.data.table_columns import order_place
from cml.data_prep.vector_rows import is_vector_text
from cml.errors import DataError, UserError

COUNTS = (12, 100)
SIZE = (320, 240)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(max(COUNTS)):
        Image.new("L", SIZE, 2 * number).save(folder / f"{number:03d}.png")
    return folder


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]], mark: str = ",") -> Path:
    lines = [mark.join(header), *(mark.join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def name_rows(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[f"{number:03d}.png", *row] for number, row in enumerate(rows)]


@pytest.fixture
def read(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[PreparedDataset, str]]:
    """Prepare images with labels, and return what was printed too."""

    def prepare(labels: Path, kind: str, *columns: str, **settings: Any) -> tuple[PreparedDataset, str]:  # noqa: ANN401
        named = {"label_columns": columns} if columns else {}
        capsys.readouterr()
        out = tmp_path / f"set{len(list(tmp_path.iterdir()))}"
        dataset = cml.prepare("folder", out, images=photos, labels=labels, kind=kind, **named, **settings)
        return dataset, capsys.readouterr().err

    return prepare


def labels_of(dataset: PreparedDataset) -> dict[str, Any]:
    return {item: label for role in ("train", "query") for item, label in zip(
        dataset.split(role).item_ids, dataset.split(role).labels, strict=True)}  # fmt: skip


# ---- places


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    "names",
    [
        ("decimalLongitude", "decimalLatitude"),
        ("GPSLongitude", "GPSLatitude"),
        ("photo_lng", "photo_lat"),
        ("Lon [deg]", "Lat [deg]"),
    ],
)
def test_longitude_and_latitude_are_known_anywhere_in_a_name(
    read: Callable[..., Any], tmp_path: Path, count: int, names: tuple[str, str]
) -> None:
    rows = np.random.default_rng(count).uniform([2, 42], [9, 49], (count, 2)).round(5).tolist()
    dataset, said = read(write(tmp_path / "t.csv", ["file_name", *names], name_rows(rows)), "place", *names)
    assert labels_of(dataset)["003.png"] == rows[3][::-1]
    assert f"reads {names[1]} (latitude), {names[0]} (longitude) in degrees" in said


@pytest.mark.parametrize("count", COUNTS)
def test_a_place_whose_names_leave_the_order_open_is_asked_for(
    read: Callable[..., Any], tmp_path: Path, count: int
) -> None:
    rows = np.random.default_rng(count).uniform([2, 42], [9, 49], (count, 2)).round(5).tolist()
    table = write(tmp_path / "t.csv", ["file_name", "x", "y"], name_rows(rows))
    with pytest.raises(UserError, match=r"Say it by --label-columns latitude=x longitude=y, or the other way round"):
        read(table, "place", "x", "y")
    lines = [json.dumps({"file_name": name, "coordinates": place}) for name, *place in name_rows(rows)]
    (tmp_path / "geo.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"--label-columns latitude=coordinates.1 longitude=coordinates.0"):
        read(tmp_path / "geo.jsonl", "place", "coordinates")
    for labels, columns in (
        (table, ("latitude=y", "longitude=x")),
        (tmp_path / "geo.jsonl", ("latitude=coordinates.1", "longitude=coordinates.0")),
    ):
        assert labels_of(read(labels, "place", *columns)[0])["003.png"] == rows[3][::-1]


def test_an_altitude_is_no_heading(read: Callable[..., Any], tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", ["file_name", "lat", "lon", "alt"], name_rows([[48, 11, 500]] * 12))
    with pytest.raises(UserError, match=r"'alt' is called an altitude"):
        read(table, "place", "lat", "lon", "alt")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("low", "high"), [((-1.5, -3.1), (1.5, 3.1)), ((0.74, 0.03), (0.86, 0.17)), ((0.6, 4.1), (0.8, 5.1))]
)
def test_places_in_radians_are_suspicious(
    read: Callable[..., Any], tmp_path: Path, count: int, low: tuple[float, float], high: tuple[float, float]
) -> None:
    rows = np.random.default_rng(count).uniform(low, high, (count, 2)).round(6).tolist()
    labels = write(tmp_path / "t.csv", ["file_name", "latitude", "longitude"], name_rows(rows))
    assert "Suspicious: radians" in read(labels, "place")[1]
    dataset, said = read(labels, "place", unit="radians")
    assert "Suspicious" not in said, said
    assert labels_of(dataset)["003.png"] == pytest.approx(np.degrees(rows[3]).tolist())


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("low", [-math.pi, 0])
def test_headings_in_radians_are_suspicious(read: Callable[..., Any], tmp_path: Path, count: int, low: float) -> None:
    rng = np.random.default_rng(count)
    rows = np.column_stack(
        [rng.uniform([42, 2], [49, 9], (count, 2)), rng.uniform(low, low + 2 * math.pi, count)]
    ).round(4)  # fmt: skip
    table = write(tmp_path / "t.csv", ["file_name", "latitude", "longitude", "heading"], name_rows(rows.tolist()))
    assert "headings lie from" in read(table, "place", "latitude", "longitude", "heading")[1]
    rows[:, 2] = np.degrees(rows[:, 2])
    table = write(tmp_path / "d.csv", ["file_name", "latitude", "longitude", "heading"], name_rows(rows.tolist()))
    assert "Suspicious" not in read(table, "place", "latitude", "longitude", "heading")[1]
    rows[:, 2] = np.radians(rows[:, 2])
    names = ("latitude", "longitude", "heading_rad")
    table = write(tmp_path / "r.csv", ["file_name", *names], name_rows(rows.tolist()))
    dataset, said = read(table, "place", *names)
    assert "Suspicious" not in said, said
    assert labels_of(dataset)["003.png"] == pytest.approx([*rows[3, :2], math.degrees(rows[3, 2])])


# ---- angles and rotations


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("mark", [-10, -99, 99])
@pytest.mark.parametrize("unit", ["degrees", "radians"])
def test_marks_of_unknown_angles_hide_no_radians(
    read: Callable[..., Any], tmp_path: Path, count: int, mark: int, unit: str
) -> None:
    turns = np.random.default_rng(count).uniform(-math.pi, math.pi, count)
    angles = [round(float(turn if unit == "radians" else math.degrees(turn)), 3) for turn in turns]
    angles = [mark if number % 6 == 0 else angle for number, angle in enumerate(angles)]
    table = write(tmp_path / "t.csv", ["file_name", "alpha"], name_rows([[angle] for angle in angles]))
    said = read(table, "angle", "alpha")[1]
    assert f"are exactly {mark}" in said
    assert f"--missing-value {mark}" in said
    assert ("Suspicious: radians" in said) == (unit == "radians")
    dataset, said = read(table, "angle", "alpha", missing_value=(str(mark),), unit=unit)
    assert f"{-(-count // 6)} rows with a missing label are left out" in said
    assert "Suspicious" not in said, said
    assert sum(dataset.info.counts.values()) == count - -(-count // 6)


@pytest.mark.parametrize("count", COUNTS)
def test_pitch_yaw_and_roll_are_put_in_order(read: Callable[..., Any], tmp_path: Path, count: int) -> None:
    turns = np.random.default_rng(count).normal(0, [0.35, 0.7, 0.2], (count, 3)).clip(-1.55, 1.55)
    rows = turns.round(5).tolist()
    names = ("pitch", "yaw", "roll")
    table = write(tmp_path / "t.csv", ["file_name", *names], name_rows(rows))
    dataset, said = read(table, "rotation", *names)
    assert "reads yaw (Z), pitch (Y), roll (X) in degrees" in said
    assert "Suspicious: radians" in said
    pitch, yaw, roll = rows[3]
    assert labels_of(dataset)["003.png"] == [yaw, pitch, roll]
    dataset, said = read(table, "rotation", *names, unit="radians")
    assert "Suspicious" not in said, said
    assert labels_of(dataset)["003.png"] == pytest.approx(np.degrees([yaw, pitch, roll]).tolist())


@pytest.mark.parametrize("count", COUNTS)
def test_three_numbers_of_a_rotation_are_asked_for(read: Callable[..., Any], tmp_path: Path, count: int) -> None:
    rows = Rotation.random(count, random_state=count).as_rotvec().round(5).tolist()
    table = write(tmp_path / "t.csv", ["file_name", "rx", "ry", "rz"], name_rows(rows))
    with pytest.raises(UserError, match=r"may be Euler angles or a rotation vector"):
        read(table, "rotation", "rx", "ry", "rz")
    said = read(table, "rotation", "rx", "ry", "rz", label_distance="rotation(form=rotvec)")[1]
    assert "Suspicious: radians" in said
    dataset, said = read(table, "rotation", "rx", "ry", "rz", label_distance="rotation(form=rotvec)", unit="radians")
    assert "Suspicious" not in said, said
    assert labels_of(dataset)["003.png"] == pytest.approx(np.degrees(rows[3]).tolist())
    lines = [json.dumps({"file_name": name, "pose": pose}) for name, *pose in name_rows(rows)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"pose.0, pose.1, pose.2 may be Euler angles or a rotation vector"):
        read(tmp_path / "t.jsonl", "rotation", "pose")


@pytest.mark.parametrize(
    "names", [("qw", "qx", "qy", "qz"), ("rot_w", "rot_x", "rot_y", "rot_z"), ("w", "x", "y", "z")]
)
def test_quaternions_are_ordered_by_their_names(
    read: Callable[..., Any], tmp_path: Path, names: tuple[str, ...]
) -> None:
    turns = Rotation.random(12, random_state=0).as_quat().round(6).tolist()
    table = write(tmp_path / "t.csv", ["file_name", *names], name_rows([[w, x, y, z] for x, y, z, w in turns]))
    dataset, said = read(table, "rotation", *names)
    assert labels_of(dataset)["003.png"] == turns[3]
    assert f"{names[0]} (w)" in said or f"{names[1]}, {names[2]}" in said


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("yaw", -180, 180), ("gpsHeading", 0, 360), ("hue", 0, 360), ("azimuth", -math.pi, math.pi), ("hour", 0, 23.9)],
)
def test_numbers_called_angles_that_turn_are_suspicious(
    read: Callable[..., Any], tmp_path: Path, count: int, name: str, low: float, high: float
) -> None:
    angles = np.random.default_rng(count).uniform(low, high, count).round(3).tolist()
    table = write(tmp_path / "t.csv", ["file_name", name, "age"], name_rows([[angle, 5 + angle] for angle in angles]))
    assert "Suspicious: circular" in read(table, "numbers", name)[1]
    assert "circular" not in read(table, "numbers", "age")[1]
    narrow = write(tmp_path / "n.csv", ["file_name", name], name_rows([[angle / 4] for angle in angles]))
    assert "circular" not in read(narrow, "numbers", name)[1] or name == "yaw"


# ---- frames


def draw_joints(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).uniform([4, 4], [SIZE[0] - 4, SIZE[1] - 4], (count, 6, 2)).round(2)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("factor", "what"),
    [
        ((100 / SIZE[0], 100 / SIZE[1]), "all joints of all {} images lie in 0..100"),
        ((0.5, 0.5), "of {} images lie within"),
        ((0.4, 0.4), "in the upper left part"),
        ((1, 1), ""),
    ],
)
def test_joints_of_another_frame_are_suspicious(
    read: Callable[..., Any], tmp_path: Path, count: int, factor: tuple[float, float], what: str
) -> None:
    joints = (draw_joints(count) * factor).round(3)
    lines = [json.dumps({"file_name": f"{n:03d}.png", "keypoints": own.tolist()}) for n, own in enumerate(joints)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    said = read(tmp_path / "t.jsonl", "keypoints")[1]
    assert what.format(count) in said
    assert ("Suspicious: frame" in said) == bool(what)
    assert "reads 6 joints in pixels; joint 1: x" in said


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda joints: joints * 2, "Are they of images of another size"),
        (lambda joints: joints[..., ::-1], "is y the first number"),
    ],
)
def test_joints_beyond_many_images_name_the_cause(
    read: Callable[..., Any], tmp_path: Path, count: int, change: Callable[[Any], Any], cause: str
) -> None:
    lines = [
        json.dumps({"file_name": f"{n:03d}.png", "keypoints": own.tolist()})
        for n, own in enumerate(change(draw_joints(count)))
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    for skip_bad in (False, True):  # leaving out rows would not mend it
        with pytest.raises(DataError, match=cause) as refused:
            read(tmp_path / "t.jsonl", "keypoints", skip_bad=skip_bad)
        assert "--skip-bad" not in str(refused.value)


def draw_boxes(count: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(count)
    low = rng.uniform([0, 0], [SIZE[0] * 0.6, SIZE[1] * 0.6], (count, 2))
    return np.column_stack([low, low + rng.uniform(20, 0.4 * np.array(SIZE), (count, 2))]).round(2)


@pytest.mark.parametrize("count", COUNTS)
def test_boxes_in_per_cent_are_suspicious(read: Callable[..., Any], tmp_path: Path, count: int) -> None:
    names = ("class", "x0", "y0", "x1", "y1")
    for factor, is_suspicious in ((np.array([100 / SIZE[0], 100 / SIZE[1]] * 2), True), (np.ones(4), False)):
        rows = [["mouse", *box] for box in (draw_boxes(count) * factor).round(2).tolist()]
        said = read(write(tmp_path / "t.csv", ["file_name", *names], name_rows(rows)), "boxes")[1]
        assert (f"all boxes of all {count} images lie in 0..100" in said) == is_suspicious


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(
    ("names", "to_form"),
    [
        (("x", "y", "w", "h"), lambda box: [*box[:2], *(box[2:] - box[:2])]),
        (("bbox_x", "bbox_y", "bbox_width", "bbox_height"), lambda box: [*box[:2], *(box[2:] - box[:2])]),
        (("height", "width", "top", "left"), lambda box: [*(box[2:] - box[:2])[::-1], *box[:2][::-1]]),
        (("x_center", "y_center", "width", "height"), lambda box: [*((box[:2] + box[2:]) / 2), *(box[2:] - box[:2])]),
        (("xmin", "xmax", "ymin", "ymax"), lambda box: box[[0, 2, 1, 3]]),
        (("x1", "y1", "x2", "y2"), lambda box: box),
    ],
)
def test_boxes_are_read_by_the_names_of_their_columns(
    read: Callable[..., Any], tmp_path: Path, count: int, names: tuple[str, ...], to_form: Callable[[Any], Any]
) -> None:
    boxes = draw_boxes(count)
    rows = [["mouse", *map(float, to_form(box))] for box in boxes]
    table = write(tmp_path / "t.csv", ["file_name", "class", *names], name_rows(rows))
    dataset, said = read(table, "boxes", "class", *names)
    expected = boxes[3] / np.array([*SIZE, *SIZE])
    assert [float(text) for text in labels_of(dataset)["003.png"][0].split()[1:]] == pytest.approx(expected, abs=1e-5)
    assert "reads boxes as" in said


@pytest.mark.parametrize("count", COUNTS)
def test_sizes_read_as_corners_and_corners_as_sizes_are_refused(
    read: Callable[..., Any], tmp_path: Path, count: int
) -> None:
    boxes = draw_boxes(count)
    sizes = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]]).round(2).tolist()
    table = write(
        tmp_path / "t.csv", ["file_name", "class", "x0", "y0", "x1", "y1"], name_rows([["a", *b] for b in sizes])
    )
    with pytest.raises(DataError, match=r"for x, y, width and height name the columns so"):
        read(table, "boxes")
    table = write(
        tmp_path / "u.csv", ["file_name", "class", "x", "y", "w", "h"], name_rows([["a", *b] for b in boxes.tolist()])
    )
    with pytest.raises(DataError, match=r"lie outside them.* or corners x0, y0, x1 and y1"):
        read(table, "boxes", "class", "x", "y", "w", "h")
    with pytest.raises(UserError, match=r"name a width or a height, but not all of x, y, w and h"):
        read(table, "boxes", "class", "a", "b", "w", "h")


# ---- several rows an item, grades, cells


@pytest.mark.parametrize("count", COUNTS)
def test_several_raters_are_joined_and_not_left_out(read: Callable[..., Any], tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(count)
    ratings = (rng.uniform(1, 5, count) + rng.normal(0, 0.4, (5, count))).round().clip(1, 5)
    rows = [[rater, f"{n:03d}.png", int(ratings[rater, n])] for rater in range(5) for n in range(count)]
    table = write(tmp_path / "t.csv", ["Rater", "file_name", "Rating"], rows)
    for skip_bad in (False, True):
        with pytest.raises(DataError, match=r"join them by --several mean or median") as refused:
            read(table, "numbers", "Rating", skip_bad=skip_bad)
        assert "--skip-bad" not in str(refused.value)
    for several, join in (("mean", np.mean), ("median", np.median)):
        dataset, said = read(table, "numbers", "Rating", several=several)
        assert labels_of(dataset)["003.png"] == pytest.approx(join(ratings[:, 3]))
        assert f"{count} items have several rows, 5 at most, {5 * count} in all" in said
    assert 0.9 < dataset.info.details["several"]["ceiling"] < 1
    assert labels_of(read(table, "numbers", "Rating", several="list")[0])["003.png"] == ratings[:, 3].tolist()
    assert labels_of(read(table, "numbers", "Rating", several="first")[0])["003.png"] == ratings[0, 3]


def test_angles_of_several_raters_have_a_mean_on_the_circle(read: Callable[..., Any], tmp_path: Path) -> None:
    rows = [[f"{n:03d}.png", angle] for angle in (350, 20) for n in range(12)]
    table = write(tmp_path / "t.csv", ["file_name", "angle"], rows)
    assert labels_of(read(table, "angle", several="mean")[0])["003.png"] == pytest.approx(5)
    with pytest.raises(UserError, match=r"Several labels of kind 'angle' give mean or first. Got 'median'"):
        read(table, "angle", several="median")


@pytest.mark.parametrize("count", COUNTS)
def test_grades_become_ordered_numbers(read: Callable[..., Any], tmp_path: Path, count: int) -> None:
    levels = ("none", "mild", "moderate", "severe")
    grades = [levels[number % 4] for number in range(count)]
    table = write(tmp_path / "t.csv", ["file_name", "grade"], name_rows([[grade] for grade in grades]))
    with pytest.raises(DataError, match=r"for ordered grades name them all, as in --levels none mild severe"):
        read(table, "numbers", "grade")
    dataset, _ = read(table, "numbers", "grade", levels=levels)
    assert labels_of(dataset)["006.png"] == 2
    with pytest.raises(DataError, match=r"should be one of the levels none, mild, severe. Got 'moderate'"):
        read(table, "numbers", "grade", levels=("none", "mild", "severe"))


@pytest.mark.parametrize("count", COUNTS)
def test_semicolons_and_three_decimals_alone_are_suspicious(
    read: Callable[..., Any], tmp_path: Path, count: int
) -> None:
    numbers = [f"{1 + n % 9}.{(37 * n) % 1000:03d}" for n in range(count)]
    table = write(tmp_path / "t.csv", ["file_name", "value"], name_rows([[number] for number in numbers]), ";")
    assert "Suspicious: thousands" in read(table, "numbers")[1]
    assert "Suspicious" not in read(table, "numbers", decimal=",", thousands=".")[1]
    comma = write(tmp_path / "c.csv", ["file_name", "value"], name_rows([[number] for number in numbers]))
    assert "Suspicious" not in read(comma, "numbers")[1]
    below = write(
        tmp_path / "b.csv", ["file_name", "value"], name_rows([[f"0{number[1:]}"] for number in numbers]), ";"
    )
    assert "Suspicious" not in read(below, "numbers")[1]


@pytest.mark.parametrize("count", COUNTS)
def test_a_quote_that_joins_rows_is_said(tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[n, f"{n}.5", f"man {n} walks"] for n in range(count)]
    rows[4][2], rows[5][2] = '"Quoted at its start', 'and at its end"'
    table = write(tmp_path / "q.tsv", ["id", "score", "sentence"], [r[:1] + r[2:] + r[1:2] for r in rows], "\t")
    table.write_text(table.read_text().replace("id\tscore\tsentence", "id\tsentence\tscore"))
    lines = table.read_text().splitlines()
    assert lines[5].endswith("4.5")
    from cml.data_prep.row_files import read_rows

    swapped = write(tmp_path / "s.tsv", ["id", "score", "sentence"], rows, "\t")
    read_all = list(read_rows(swapped, "rows"))
    assert len(read_all) == count - 1
    assert "a cell of line 6 holds a line break" in capsys.readouterr().err
    plain = list(read_rows(swapped, "rows", "none"))
    assert len(plain) == count
    assert plain[4][1]["sentence"] == '"Quoted at its start'  # type: ignore[index]


@pytest.mark.parametrize("count", COUNTS)
def test_vectors_as_texts_in_cells(tmp_path: Path, count: int) -> None:
    vectors = np.random.default_rng(count).normal(size=(count, 6)).astype(np.float32)
    spellings = (
        lambda v: str(v.tolist()),
        lambda v: " ".join(str(v).split()),
        lambda v: " ".join(map(str, v.tolist())),
        lambda v: "; ".join(map(str, v.tolist())),
    )
    for number, spell in enumerate(spellings):
        table = write(
            tmp_path / f"{number}.csv",
            ["id", "age", "embedding"],
            [[n, 20.5 + n, f'"{spell(v)}"'] for n, v in enumerate(vectors)],
        )
        settings: dict[str, Any] = {"features": ("embedding",), "label_columns": ("age",), "id_column": "id"}
        dataset = cml.prepare("table", tmp_path / f"set{number}", source=table, **settings)
        split = dataset.split("train")
        assert split.vectors is not None
        assert split.vectors.read(np.arange(1))[0] == pytest.approx(vectors[int(split.item_ids[0])], abs=1e-6)
    cut = write(
        tmp_path / "cut.csv", ["id", "age", "embedding"], [[n, 20.5, '"[ 0.1 0.2 ... 0.3]"'] for n in range(count)]
    )
    for text in (cut.read_text(), cut.read_text()[:-5]):  # the second ends within quotes
        cut.write_text(text)
        with pytest.raises(DataError, match=r"was cut by NumPy, which writes ... for the middle of long arrays"):
            cml.prepare("table", tmp_path / "cut", source=cut, **settings)


@pytest.mark.parametrize("text", ["12 kg", "1 234 567 x", "1 234 567", "12 345,6", "0.5", "", "1,234"])
def test_other_cells_are_no_vectors(text: str) -> None:
    assert not is_vector_text(text)


@pytest.mark.parametrize("names", [("easting", "northing"), ("utm_x", "utm_y")])
def test_metres_on_a_map_are_no_places_in_degrees(names: tuple[str, str]) -> None:
    with pytest.raises(UserError, match="are called metres on a map: compare them by the label distance 'euclidean'"):
        order_place(names)


def test_the_first_of_each_kind_of_bad_row_is_named(read: Callable[..., Any], tmp_path: Path) -> None:
    rows = [["" if n % 4 == 1 else "x" if n % 4 == 2 else n] for n in range(12)]
    table = write(tmp_path / "t.csv", ["file_name", "value"], name_rows(rows))
    with pytest.raises(DataError, match=r"6 rows are bad: 3 as in line 3, line 7, line 11; 3 as in line 4"):
        read(table, "numbers")
