"""Forty mistakes of people's tables, three inputs each: none is read without a word, or it is read as it was meant.

Every mistake names the kind of label, the table, and what the person has to be told; or the label that was meant.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

import cml
from cml.errors import DataError, UserError

WIDTH, HEIGHT = 320, 240


class Table(NamedTuple):
    """A table with a planted mistake, and what has to be said of it."""

    kind: str
    columns: Sequence[str]  # of the label, as the person names them
    rows: Sequence[Sequence[Any]]  # their cells
    told: str  # a pattern in what is printed or refused
    settings: dict[str, Any] = {}  # noqa: RUF012 - never written to
    label: Any = None  # of the fourth row, where it is read as it was meant
    header: Sequence[str] = ()  # where the columns are other than the label's
    mark: str = ","


def uniform(rng: np.random.Generator, low: Any, high: Any, count: int, digits: int = 4) -> list[Any]:  # noqa: ANN401
    low, high = np.broadcast_arrays(low, high)
    rows: list[Any] = rng.uniform(low, high, (count, *low.shape)).round(digits).tolist()
    return rows


def column(values: Sequence[Any]) -> list[list[Any]]:
    return [[value] for value in values]


# ---- units


def angles_in_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    low, high = ((-math.pi, math.pi), (0, 2 * math.pi), (0, math.pi))[number]
    name = ("alpha", "theta", "orientation")[number]
    return Table("angle", [name], column(uniform(rng, low, high, count)), "radians")


def degrees_called_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    name = ("yaw_rad", "heading_radians", "yaw")[number]
    low, high = ((-180, 180), (0, 360), (-60, 60))[number]
    settings = {"unit": "radians"} if number == 2 else {}
    return Table("angle", [name], column(uniform(rng, low, high, count, 1)), "degrees", settings)


def headings_in_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    low, high = ((-math.pi, math.pi), (0, 2 * math.pi), (0.5, 2.9))[number]
    rows = uniform(rng, [42, 2, low], [49, 9, high], count)
    return Table("place", ["lat", "lon", ("heading", "compass", "bearing")[number]], rows, "headings lie from")


def places_in_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    low, high = (([0.74, 0.03], [0.86, 0.17]), ([-0.6, 2.5], [-0.5, 2.7]), ([0.5, -2.1], [0.8, -1.3]))[number]
    return Table("place", ["latitude", "longitude"], uniform(rng, low, high, count, 6), "radians")


def eulers_in_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    size = ([0.7, 0.35, 0.2], [0.5, 0.5, 0.5], [1.0, 0.4, 0.1])[number]
    names = (["yaw", "pitch", "roll"], ["head_yaw", "head_pitch", "head_roll"], ["Yaw", "Pitch", "Roll"])[number]
    rows = rng.normal(0, size, (count, 3)).clip(-1.55, 1.55).round(4).tolist()
    return Table("rotation", names, rows, "radians")


def rotation_vectors_in_radians(rng: np.random.Generator, count: int, number: int) -> Table:
    rows = Rotation.random(count, random_state=number).as_rotvec().round(5)
    rows = rows * (1, 0.8, 0.5)[number]
    names = (["rx", "ry", "rz"], ["rvec_x", "rvec_y", "rvec_z"], ["a", "b", "c"])[number]
    return Table("rotation", names, rows.round(4).tolist(), "radians", {"label_distance": "rotation(form=rotvec)"})


def hours_as_plain_numbers(rng: np.random.Generator, count: int, number: int) -> Table:
    name, high = (("hour", 24), ("capture_hour", 23), ("month", 12))[number]
    if name == "month":
        return Table("numbers", [name], column([1 + n % 12 for n in range(count)]), "circular")
    return Table("numbers", [name], column(uniform(rng, 0, high, count, 1)), "circular")


def angles_as_plain_numbers(rng: np.random.Generator, count: int, number: int) -> Table:
    name, low, high = (("yaw", -180, 180), ("hue", 0, 360), ("wind_direction", 0, 360))[number]
    return Table("numbers", [name], column(uniform(rng, low, high, count, 1)), "circular")


def hours_as_degrees(rng: np.random.Generator, count: int, number: int) -> Table:
    name, high = (("hour", 24), ("hour_of_day", 23.9), ("month", 12))[number]
    return Table("angle", [name], column(uniform(rng, 0, high, count, 2)), "period")


def three_decimals_between_semicolons(rng: np.random.Generator, count: int, number: int) -> Table:
    low, high = ((1, 9), (1, 99), (10, 900))[number]
    rows = column([f"{whole}.{rest:03d}" for whole, rest in zip(
        rng.integers(low, high, count).tolist(), rng.integers(0, 1000, count).tolist(), strict=True)])  # fmt: skip
    return Table("numbers", [("price", "value", "area")[number]], rows, "thousands", mark=";")


def decimal_commas(rng: np.random.Generator, count: int, number: int) -> Table:
    rows = column([str(value).replace(".", ",") for value in uniform(rng, 0, (9, 99, 0.9)[number], count, 2 + number)])
    return Table("numbers", ["value"], rows, "--decimal", mark=";")


def per_cent_signs(rng: np.random.Generator, count: int, number: int) -> Table:
    sign = ("%", " %", " cm")[number]
    return Table("numbers", ["value"], column([f"{v}{sign}" for v in uniform(rng, 0, 100, count, 1)]), "--unit")


# ---- order


def longitudes_before_latitudes(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["decimalLongitude", "decimalLatitude"], ["gps.lng", "gps.lat"], ["LON", "LAT"])[number]
    rows = uniform(rng, [2, 42], [9, 49], count)
    return Table("place", names, rows, f"reads {names[1]}", label=rows[3][::-1])


def places_without_names(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["x", "y"], ["first", "second"], ["coord0", "coord1"])[number]
    return Table("place", names, uniform(rng, [2, 42], [9, 49], count), "latitude")


def lists_of_places(rng: np.random.Generator, count: int, number: int) -> Table:
    name = ("coordinates", "location", "position")[number]
    rows = [[place] for place in uniform(rng, [2, 42], [9, 49], count)]
    return Table("place", [name], rows, rf"latitude={name}\.1 longitude={name}\.0")


def pitch_before_yaw(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["pitch", "yaw", "roll"], ["roll", "pitch", "yaw"], ["pose_Pitch", "pose_Yaw", "pose_Roll"])[number]
    rows = uniform(rng, -60, 60, 3 * count, 1)
    rows = [rows[3 * n : 3 * n + 3] for n in range(count)]
    by_name = {name.lower().rpartition("_")[2]: value for name, value in zip(names, rows[3], strict=True)}
    return Table("rotation", names, rows, r"\(Z\).*\(Y\).*\(X\)", label=[by_name[n] for n in ("yaw", "pitch", "roll")])


def three_numbers_of_a_rotation(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["rx", "ry", "rz"], ["rot_x", "rot_y", "rot_z"], ["r1", "r2", "r3"])[number]
    return Table("rotation", names, uniform(rng, [-1] * 3, [1] * 3, count), "Euler angles or a rotation vector")


def quaternions_with_w_first(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["qw", "qx", "qy", "qz"], ["rotation_w", "rotation_x", "rotation_y", "rotation_z"], ["W", "X", "Y", "Z"])
    turns = Rotation.random(count, random_state=number).as_quat().round(6).tolist()
    rows = [[w, x, y, z] for x, y, z, w in turns]
    return Table("rotation", names[number], rows, "in this order", label=turns[3])


def quaternions_without_names(rng: np.random.Generator, count: int, number: int) -> Table:
    rows = [[w, x, y, z] for x, y, z, w in Rotation.random(count, random_state=number).as_quat().round(6).tolist()]
    if number == 2:
        return Table("rotation", ["quaternion"], [[row] for row in rows], "qw=quaternion.3")
    names = (["q0", "q1", "q2", "q3"], ["q1", "q2", "q3", "q4"])[number]
    return Table("rotation", names, rows, f"qw={names[3]}")


def boxes_in_another_order(rng: np.random.Generator, count: int, number: int) -> Table:
    places = ([1, 0, 3, 2], [0, 2, 1, 3], [1, 3, 0, 2])[number]
    known = (("xmin", "ymin", "xmax", "ymax"), ("x0", "y0", "x1", "y1"), ("left", "top", "right", "bottom"))[number]
    boxes = draw_boxes(rng, count)
    shares = boxes[3] / np.array([WIDTH, HEIGHT] * 2)
    rows = [["cat", *(box[place] for place in places)] for box in boxes.tolist()]
    return Table("boxes", ["class", *(known[place] for place in places)], rows, "reads boxes as corners", label=shares)


# ---- frames


def draw_joints(rng: np.random.Generator, count: int) -> Any:  # noqa: ANN401
    return rng.uniform([4, 4], [WIDTH - 4, HEIGHT - 4], (count, 6, 2)).round(2)


def draw_boxes(rng: np.random.Generator, count: int) -> Any:  # noqa: ANN401
    low = rng.uniform([0, 0], [WIDTH * 0.6, HEIGHT * 0.6], (count, 2))
    return np.column_stack([low, low + rng.uniform(20, 0.4 * np.array([WIDTH, HEIGHT]), (count, 2))]).round(2)


def of_joints(joints: Any, told: str, name: str = "keypoints") -> Table:  # noqa: ANN401
    return Table("keypoints", [name], [[own] for own in joints.round(4).tolist()], told)


def joints_in_per_cent(rng: np.random.Generator, count: int, number: int) -> Table:
    joints = draw_joints(rng, count) * (100 / WIDTH, 100 / HEIGHT)
    joints = (joints, 30 + 0.4 * joints, joints * 0.9)[number]  # of all, of people in the middle
    return of_joints(joints, "all joints of all .* images lie in 0..100")


def joints_in_shares(rng: np.random.Generator, count: int, number: int) -> Table:
    joints = draw_joints(rng, count) / (WIDTH, HEIGHT)
    return of_joints((joints, joints * 0.8, 0.2 + 0.5 * joints)[number], "shares|fractions")


def joints_of_smaller_images(rng: np.random.Generator, count: int, number: int) -> Table:
    return of_joints(draw_joints(rng, count) * (0.5, 0.25, 0.55)[number], "in the upper left part|lie in 0..100")


def joints_of_larger_images(rng: np.random.Generator, count: int, number: int) -> Table:
    return of_joints(draw_joints(rng, count) * (2, 4, 1.5)[number], "of images of another size")


def joints_with_y_first(rng: np.random.Generator, count: int, number: int) -> Table:
    joints = draw_joints(rng, count)
    if number:  # a joint at the right side in each
        joints[:, number, 0] = rng.uniform(260, 316, count).round(1)
    return of_joints(joints[..., ::-1], "is y the first number")


def boxes_in_per_cent(rng: np.random.Generator, count: int, number: int) -> Table:
    boxes = draw_boxes(rng, count) * np.array([100 / WIDTH, 100 / HEIGHT] * 2) * (1, 0.9, 1)[number]
    names = (["x0", "y0", "x1", "y1"], ["xmin", "ymin", "xmax", "ymax"], ["x", "y", "width", "height"])[number]
    if number == 2:
        boxes[:, 2:] -= boxes[:, :2]
    rows = [["cat", *box] for box in boxes.round(2).tolist()]
    return Table("boxes", ["class", *names], rows, "all boxes of all .* images lie in 0..100")


def boxes_in_shares(rng: np.random.Generator, count: int, number: int) -> Table:
    boxes = draw_boxes(rng, count) / np.array([WIDTH, HEIGHT] * 2)
    names = (["x0", "y0", "x1", "y1"], ["left", "top", "right", "bottom"], ["cx", "cy", "w", "h"])[number]
    if number == 2:
        boxes = np.column_stack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]])
    return Table("boxes", ["class", *names], [["cat", *box] for box in boxes.round(4).tolist()], "fractions|shares")


def boxes_of_other_images(rng: np.random.Generator, count: int, number: int) -> Table:
    rows = [["cat", *box] for box in (draw_boxes(rng, count) * (0.5, 2, 3)[number]).round(2).tolist()]
    return Table("boxes", ["class", "x0", "y0", "x1", "y1"], rows, "upper left part|of images of another size")


# ---- corner or size


def sizes_called_corners(rng: np.random.Generator, count: int, number: int) -> Table:
    boxes = draw_boxes(rng, count)
    boxes[:, 2:] -= boxes[:, :2]
    names = (["x0", "y0", "x1", "y1"], ["xmin", "ymin", "xmax", "ymax"], ["left", "top", "right", "bottom"])[number]
    return Table("boxes", ["class", *names], [["cat", *box] for box in boxes.tolist()], "width and height")


def corners_called_sizes(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["x", "y", "w", "h"], ["left", "top", "width", "height"], ["bbox_x", "bbox_y", "bbox_w", "bbox_h"])
    return Table("boxes", ["class", *names[number]], [["cat", *b] for b in draw_boxes(rng, count).tolist()], "corners")


def boxes_without_names(rng: np.random.Generator, count: int, number: int) -> Table:
    boxes = draw_boxes(rng, count)
    if number:
        boxes[:, 2:] -= boxes[:, :2]
    if number == 2:
        columns = ["class", *(f"bbox.{place}" for place in range(4))]
        return Table("boxes", columns, [["cat", b] for b in boxes.tolist()], "x=bbox.0", header=["class", "bbox"])
    names = ["a", "b", "c", "d"] if number else ["v1", "v2", "v3", "v4"]
    return Table("boxes", ["class", *names], [["cat", *box] for box in boxes.tolist()], f"x={names[0]}")


def middles_called_corners(rng: np.random.Generator, count: int, number: int) -> Table:
    boxes = draw_boxes(rng, count)
    middles = np.column_stack([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]])
    names = (["x_center", "y_center", "w", "h"], ["cx", "cy", "width", "height"], ["xc", "yc", "w", "h"])[number]
    shares = boxes[3] / np.array([WIDTH, HEIGHT] * 2)
    rows = [["cat", *box] for box in middles.round(3).tolist()]
    return Table("boxes", ["class", *names], rows, "middle and size", label=shares)


# ---- marks of unknown labels


def mark(values: Sequence[Any], sign: Any, every: int = 6) -> list[list[Any]]:  # noqa: ANN401
    return column([sign if number % every == 0 else value for number, value in enumerate(values)])


def unknown_angles(rng: np.random.Generator, count: int, number: int) -> Table:
    sign, low, high = ((-10, -math.pi, math.pi), (-99, -90, 90), (-1, 0, 360))[number]
    return Table("angle", ["alpha"], mark(uniform(rng, low, high, count, 3), sign), f"--missing-value {sign}")


def unknown_numbers(rng: np.random.Generator, count: int, number: int) -> Table:
    sign, low, high = ((-1, 15, 80), (999, 1, 60), (-9999, -50, 50))[number]
    return Table("numbers", ["age"], mark(uniform(rng, low, high, count, 1), sign), f"--missing-value {sign}")


def unknown_whole_numbers(rng: np.random.Generator, count: int, number: int) -> Table:
    sign, low, high = ((-1, 18, 70), (999, 18, 90), (-99, 0, 40))[number]
    return Table("numbers", ["age"], mark(rng.integers(low, high, count).tolist(), sign), f"--missing-value {sign}")


def unknown_places(rng: np.random.Generator, count: int, number: int) -> Table:
    sign = ([0, 0], [-1, -1], [-999, -999])[number]
    rows = uniform(rng, [42, 2], [49, 9], count)
    rows = [sign if n % 6 == 0 else row for n, row in enumerate(rows)]
    return Table("place", ["lat", "lon"], rows, "unknown|should be in -90..90")


def unknown_parts(rng: np.random.Generator, count: int, number: int) -> Table:
    sign = (-1, -99, 999)[number]
    rows = uniform(rng, [10, 0], [60, 30], count, 1)
    rows = [[row[0], sign] if n % 6 == 0 else row for n, row in enumerate(rows)]
    return Table("numbers", ["height", "weight"], rows, f"--missing-value {sign}")


def unknown_joints(rng: np.random.Generator, count: int, number: int) -> Table:
    joints = draw_joints(rng, count)
    joints[::3, 2] = ([0, 0], [-1, -1], [1, 1])[number]
    return of_joints(joints, "taken as hidden|corner")


# ---- raters


def raters_in_rows(rng: np.random.Generator, count: int, number: int) -> Table:
    kind, values = (("numbers", [3, 4]), ("angle", [20.5, 31.5]), ("classes", ["cat", "dog"]))[number]
    rows = [[f"{n:03d}.png", rater, values[rater]] for rater in (0, 1) for n in range(count)]
    name = {"numbers": "value", "angle": "angle", "classes": "class"}[kind]
    return Table(kind, [name], rows, "--several", header=["file_name", "rater", name])


def raters_in_columns(rng: np.random.Generator, count: int, number: int) -> Table:
    names = (["rater1", "rater2", "rater3"], ["score_annotator_a", "score_annotator_b"], ["Judge 1", "Judge 2"])[number]
    return Table("numbers", names, rng.integers(1, 6, (count, len(names))).tolist(), "--several")


def grades_in_words(rng: np.random.Generator, count: int, number: int) -> Table:
    words = (["low", "mid", "high"], ["F0", "F1", "F2"], ["none", "mild", "severe"])[number]
    return Table("numbers", ["grade"], column([words[n % 3] for n in range(count)]), "--levels")


# ---- quotes and cells


def quotes_of_texts(rng: np.random.Generator, count: int, number: int) -> Table:
    first, last = (('"He said', 'so" they'), ('"', '"'), ('"a quote is left open', "nothing"))[number]
    texts = [first if n == 4 else last if n == 6 else f"man {n}" for n in range(count)]
    return Table("captions", ["caption"], column(texts), "--quote none", mark="\t")


def names_in_the_first_row(rng: np.random.Generator, count: int, number: int) -> Table:
    rows = [[f"{n:03d}.png", value] for n, value in enumerate(uniform(rng, 0, 99, count, 1))]
    kind, columns = ("numbers", ["value"]) if number < 2 else ("angle", ["angle"])
    return Table(kind, columns, rows[1:], "names of the columns", header=[str(cell) for cell in rows[0]])


def ids_and_dates(rng: np.random.Generator, count: int, number: int) -> Table:
    cells = [(f"P{n:03d}", f"2024-0{1 + n % 9}-11", "true")[number] for n in range(count)]
    return Table("numbers", ["value"], column(cells), ("an id is no number", "date", "--kind classes")[number])


Mistake = Callable[[np.random.Generator, int, int], Table]
MISTAKES: Sequence[Mistake] = (
    angles_in_radians, degrees_called_radians, headings_in_radians, places_in_radians, eulers_in_radians,
    rotation_vectors_in_radians, hours_as_plain_numbers, angles_as_plain_numbers, hours_as_degrees,
    three_decimals_between_semicolons, decimal_commas, per_cent_signs, longitudes_before_latitudes,
    places_without_names, lists_of_places, pitch_before_yaw, three_numbers_of_a_rotation, quaternions_with_w_first,
    quaternions_without_names, boxes_in_another_order, joints_in_per_cent, joints_in_shares, joints_of_smaller_images,
    joints_of_larger_images, joints_with_y_first, boxes_in_per_cent, boxes_in_shares, boxes_of_other_images,
    sizes_called_corners, corners_called_sizes, boxes_without_names, middles_called_corners, unknown_angles,
    unknown_numbers, unknown_whole_numbers, unknown_places, unknown_parts, unknown_joints, raters_in_rows,
    raters_in_columns, grades_in_words, quotes_of_texts, names_in_the_first_row, ids_and_dates,
)  # fmt: skip


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(100):
        Image.new("L", (WIDTH, HEIGHT), 2 * number).save(folder / f"{number:03d}.png")
    return folder


def write(folder: Path, table: Table) -> Path:
    named = list(table.header) if "file_name" in table.header else ["file_name", *(table.header or table.columns)]
    rows = [list(row) if len(row) == len(named) else [f"{n:03d}.png", *row] for n, row in enumerate(table.rows)]
    if table.header and "file_name" not in table.header and str(table.header[0]).endswith(".png"):
        named, rows = list(table.header), [list(row) for row in table.rows]
    if any(isinstance(cell, list) for row in rows for cell in row):
        path = folder / "t.jsonl"
        path.write_text("\n".join(json.dumps(dict(zip(named, row, strict=True))) for row in rows))
        return path
    path = folder / ("t.tsv" if table.mark == "\t" else "t.csv")
    with path.open("w", newline="") as file:
        if table.kind == "captions":  # quotes are written as any other character
            file.write("\n".join(table.mark.join(map(str, row)) for row in [named, *rows]))
        else:
            csv.writer(file, delimiter=table.mark).writerows([named, *rows])
    return path


def prepare(photos: Path, folder: Path, table: Table, capsys: pytest.CaptureFixture[str]) -> tuple[str, Any]:
    """What is printed or refused, and the dataset where there is one."""
    path = write(folder, table)
    capsys.readouterr()
    try:
        dataset = cml.prepare(
            "folder", folder / "set", images=photos, labels=path, kind=table.kind, label_columns=tuple(table.columns),
            image_size=32, **table.settings,
        )  # fmt: skip
    except (DataError, UserError) as error:
        return str(error), None
    return capsys.readouterr().err, dataset


def check(
    mistake: Mistake, number: int, count: int, photos: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = mistake(np.random.default_rng([count, number]), count, number)
    told, dataset = prepare(photos, folder, table, capsys)
    assert re.search(table.told, told), f"{table.columns}: {table.told!r} is not in {told!r}"
    if table.label is not None:
        labels = dict(pair for role in ("train", "query") for pair in zip(
            dataset.split(role).item_ids, dataset.split(role).labels, strict=True))  # fmt: skip
        label = labels["003.png"]
        numbers = [float(text) for text in label[0].split()[1:]] if table.kind == "boxes" else label
        assert numbers == pytest.approx(list(table.label), abs=1e-5)
    elif dataset is not None:
        assert "Suspicious" in told or "taken as hidden" in told or "line break" in told, told


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_planted_mistake_is_told(
    mistake: Mistake, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(mistake, 0, 12, photos, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_every_input_of_a_planted_mistake_is_told(
    mistake: Mistake, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, count in ((1, 12), (2, 12), (0, 100), (1, 100), (2, 100)):
        folder = tmp_path / f"{number} of {count}"
        folder.mkdir()
        check(mistake, number, count, photos, folder, capsys)
