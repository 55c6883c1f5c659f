"""Files that are read as something else than they mean: each is refused with its cause, or what was read is printed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data_prep.row_errors import refuse_bad_rows
from cml.errors import DataError, UserError
from cml.plausibility.label_rules import find_in_labels

NAMES = [f"{number:03d}.png" for number in range(12)]
Prepare = Callable[..., str]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(NAMES):
        Image.new("L", (320, 240), 20 * number).save(folder / name)
    return folder


@pytest.fixture
def read(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Prepare:
    """Prepare the images with a file of labels, and return what was printed."""

    def prepare(name: str, text: str, kind: str = "numbers", *columns: str, **settings: Any) -> str:  # noqa: ANN401
        (tmp_path / name).write_text(text)
        named = {"label_columns": columns} if columns else {}
        cml.prepare("folder", tmp_path / "set", images=photos, labels=tmp_path / name, kind=kind, **named, **settings)
        return capsys.readouterr().err

    return prepare


def rows(form: str, header: str = "file_name,value") -> str:
    """A row for each image; {n} in ``form`` is its number."""
    return "\n".join([header, *(f"{name},{form.format(n=n)}" for n, name in enumerate(NAMES))]) + "\n"


def entries(form: str) -> list[Any]:
    return [{"file_name": name, "value": json.loads(form.format(n=n))} for n, name in enumerate(NAMES)]


REFUSED = [
    ("title.csv", f"A survey,\n{rows('{n}')}", ":2: .* seems to hold the names of the columns: delete the lines above"),
    ("comment.csv", f"# by a tool\n{rows('{n}')}", "if the first line is a title or a comment, delete it"),
    ("end.csv", rows("{n},"), "It has 3; leave out the separator at its end"),
    ("list.jsonl", json.dumps(entries("{n}")), r"holds a list: name it .json"),
    ("names.json", json.dumps(dict.fromkeys(NAMES, 5)), "should be COCO's JSON, with lists of images and annotations"),
    ("fields.jsonl", "\n".join(map(json.dumps, entries('{{"a": {n}}}'))), "name one of them, as in COLUMN.FIELD"),
    ("failed.csv", rows("#DIV/0!"), "a formula of the table has failed"),
    ("degrees.csv", rows("48°{n}'0N"), "write degrees, minutes and seconds as one number"),
    ("two.csv", rows('"48.{n},11.5"'), "the cell holds several numbers: put each into a column of its own"),
    ("ids.csv", "\n".join(["file_name,value", *(f"{900 + n},{n}" for n in range(12))]), "give a --file-pattern"),
    ("old.xls", "", "should be a .csv, .tsv, .jsonl, .json, .parquet or .xlsx file"),
    ("one.xml", "<annotation/>", "convert XML and folders of JSON files to COCO's JSON"),
]


@pytest.mark.parametrize(("name", "text", "said"), REFUSED, ids=[case[0] for case in REFUSED])
def test_a_refusal_names_the_cause(read: Prepare, name: str, text: str, said: str) -> None:
    with pytest.raises((DataError, UserError), match=said):
        read(name, text)


def test_lists_of_json_and_bars_between_cells_are_read(read: Prepare, tmp_path: Path) -> None:
    assert "reads value: 3 (000.png)" in read("list.json", json.dumps(entries("{n}").copy()).replace(": 0}", ": 3}"))
    (tmp_path / "set").rename(tmp_path / "first")
    assert "separated by bars" in read("bars.csv", rows("{n}").replace(",", "|"))


def test_an_empty_group_is_no_group(read: Prepare) -> None:
    merged = [f"{name},{n},{'a' if n % 4 == 0 else ''}" for n, name in enumerate(NAMES)]
    text = "\n".join(["file_name,value,site", *merged])
    with pytest.raises(DataError, match="site is empty, but should be a name; fill it in; of cells that are merged"):
        read("groups.csv", text, group_column="site", query_fraction=0.5)


def test_empty_cells_are_left_out_as_missing(read: Prepare) -> None:
    text = rows("{n}").replace(",7\n", ",\n")
    assert "1 rows with a missing label are left out" in read("gaps.csv", text, missing_value=("",))


def test_a_workbook_says_which_sheet_is_read(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "people"
    book.create_sheet("more")
    for row in (["file_name", "value"], *([name, n] for n, name in enumerate(NAMES))):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    cml.prepare("folder", tmp_path / "set", images=photos, labels=tmp_path / "t.xlsx")
    assert "the sheet 'people' is read, and not the other 1" in capsys.readouterr().err


def test_winners_0_and_1_are_asked_for(read: Prepare) -> None:
    pairs = [f"{a},{b},{n % 2}" for n, (a, b) in enumerate(itertools.combinations(NAMES, 2))]
    text = "\n".join(["left,right,winner", *pairs])
    with pytest.raises(DataError, match="0 and 1 in winner may be left and right, or a tie and left"):
        read("pairs.csv", text, "numbers", "score")
    said = read(
        "pairs.csv", text.replace(",1\n", ",right\n").replace(",0\n", ",left\n")[:-1] + "right", "numbers", "score"
    )
    assert "66 comparisons of 12 items, of which left won 33 and right 33" in said


JOINTS = "file_name,nose_{0},nose_{1},eye_{0},eye_{1},ear_{0},ear_{1}{2}"


def test_joints_are_found_by_names_in_any_order(read: Prepare) -> None:
    text = rows("40,1{n},30,80,1{n},60", JOINTS.format("y", "x", ""))
    assert "nose: x 10, y 40" in read("joints.csv", text, "keypoints")


def test_depths_of_joints_are_said_to_be_left_out(read: Prepare) -> None:
    text = rows("1{n},10,30,80,1{n},60,1", JOINTS.format("x", "y", ",nose_z"))
    assert "nose_z and the like are left out" in read("joints.csv", text, "keypoints")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0 .1 .1 .5 .2 .3 .7", "the corners of an outline are to be replaced by its box"),
        ("0 .1 .1 .5 .1 .5 .4 .1 .4", "the corners of an outline are to be replaced by its box"),
        ("0 .5 .5 .2 .2 .9", "a sixth number, such as a confidence, is no joint"),
    ],
)
def test_outlines_and_confidences_of_yolo_are_no_boxes(photos: Path, tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "labels").mkdir()
    for name in NAMES:
        (tmp_path / "labels" / name).with_suffix(".txt").write_text(line)
    with pytest.raises(DataError, match=said):
        cml.prepare("folder", tmp_path / "set", images=photos, labels=tmp_path / "labels", kind="boxes")


def test_a_file_without_the_kind_is_named(read: Prepare) -> None:
    images = [{"id": n, "file_name": name} for n, name in enumerate(NAMES)]
    captions = [{"id": n, "image_id": n, "caption": f"a cat, {n}"} for n in range(12)]
    with pytest.raises(DataError, match="no other rows than 12 with no boxes: name another --kind"):
        read("captions.json", json.dumps({"images": images, "annotations": captions}), "boxes")


def boxes(form: Callable[[float, float, float, float], tuple[float, ...]]) -> str:
    drawn = np.random.default_rng(0).uniform(5, 70, (12, 4)).round().tolist()
    cells = [",".join(map(str, ["cat", *form(*box)])) for box in drawn]
    return "\n".join(["file_name,class,x,y,w,h", *map(",".join, zip(NAMES, cells, strict=True))])


COLUMNS = ("class", "x", "y", "w", "h")


def test_ends_that_are_called_sizes_are_suspicious(read: Prepare) -> None:
    assert "wider and higher the farther right" not in read("sound.csv", boxes(lambda *box: box), "boxes", *COLUMNS)


def test_sizes_are_not(read: Prepare) -> None:
    text = boxes(lambda x, y, w, h: (x, y, x + w, y + h))
    assert "wider and higher the farther right" in read("ends.csv", text, "boxes", *COLUMNS)


DATES = [20200100 + 100 * (n % 12) + n // 12 + 1 for n in range(40)]
CODED = [
    ("codes", DATES, "date", ""),
    ("codes", [n % 5 for n in range(40)], "category_id", ""),
    ("codes", [n % 5 for n in range(40)], "vehicleClass", ""),
    ("radians", np.arange(40) / 41, "angle", "circular"),
    ("radians", np.arange(40) * 10, "angle", "circular(period=360)"),
]


@pytest.mark.parametrize(("rule", "labels", "name", "distance"), CODED)
def test_codes_and_other_turns_are_suspicious(rule: str, labels: Any, name: str, distance: str) -> None:  # noqa: ANN401
    assert [found.rule for found in find_in_labels(labels, columns=[name], distance=distance)] == [rule]


@pytest.mark.parametrize(
    ("labels", "name", "distance"),
    [
        ([20200101.0 + 7919 * n for n in range(40)], "count", ""),
        ([20200115] * 20 + [20200116] * 20, "price", ""),
        ([n % 5 for n in range(40)], "grade", ""),
        (list(range(40)), "class", ""),
        (np.linspace(0, 0.5, 40), "tilt", "circular"),
        (np.linspace(0, 355, 40), "angle", "circular"),
        (np.linspace(0, 720, 40), "angle", "circular"),
    ],
)
def test_numbers_and_angles_are_not(labels: Any, name: str, distance: str) -> None:  # noqa: ANN401
    assert find_in_labels(labels, columns=[name], distance=distance) == []


def test_bad_rows_of_many_files_and_of_entries_are_told_apart() -> None:
    rows = [DataError(f"a/{n}.txt:1: the number should be above 0. Got -{n} instead") for n in (1, 2)]
    with pytest.raises(DataError, match=r"2 as in 1.txt:1, 2.txt:1\."):
        refuse_bad_rows(rows)
    rows = [DataError(f"a/b.json: annotation {n}: the bbox is bad") for n in (1, 2)]
    with pytest.raises(DataError, match=r"2 as in annotation 1, annotation 2\."):
        refuse_bad_rows(rows)
