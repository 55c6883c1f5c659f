"""Formats of labels: what tools write, each read to the same joints and boxes, and broken files refused in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data_prep.sources.folder import Folder
from cml.errors import DataError, UserError

NAMES = ("nose", "l_eye", "r_eye", "tail")
COUNT, SIZE = 12, (320, 240)
JOINTS = np.random.default_rng(0).uniform([9, 9], [SIZE[0] - 9, SIZE[1] - 9], (COUNT, 4, 2)).round(1)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(COUNT):
        Image.new("L", SIZE, 20 * number).save(folder / f"img{number:03d}.png")
    return folder


def name_of(number: int, before: str = "") -> str:
    return f"{before}img{number:03d}.png"


def box_of(number: int) -> list[float]:
    low, high = JOINTS[number].min(axis=0), JOINTS[number].max(axis=0)
    return [float(value) for value in (*low, *(high - low))]


def write_coco(path: Path, before: str = "", **changes: Any) -> Path:  # noqa: ANN401
    images = [{"id": n + 1, "file_name": name_of(n, before), "width": SIZE[0], "height": SIZE[1]} for n in range(COUNT)]
    annotations = [
        {
            "id": n + 1,
            "image_id": n + 1,
            "category_id": 3,
            "bbox": box_of(n),
            "keypoints": [float(value) for x, y in JOINTS[n] for value in (x, y, 2)],
            "attributes": {"age": 20 + n},
            **changes,
        }
        for n in range(COUNT)
    ]
    categories = [{"id": 3, "name": "mouse", "keypoints": list(NAMES), "skeleton": [[1, 2]]}]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return path


def write_roboflow(path: Path) -> Path:
    """A category above the others without joints, and ids of images as texts."""
    content = json.loads(write_coco(path).read_text())
    content["categories"].insert(0, {"id": 0, "name": "mice", "supercategory": "none"})
    for photo in content["images"]:
        photo |= {
            "id": str(photo["id"]),
            "license": 1,
            "date_captured": "2024-01-01",
            "extra": {"name": "original.png"},
        }
    path.write_text(json.dumps(content))
    return path


def write_deeplabcut(path: Path, animals: tuple[str, ...] = (), *, cut: bool = False) -> Path:
    before = ["labeled-data", "mouse"] if cut else []
    start = [[name, *([""] * len(before))] for name in ("scorer", "individuals", "bodyparts", "coords")]
    columns = [(animal, name, part) for animal in animals or ("",) for name in NAMES for part in "xy"]
    rows = [start[0] + ["Ann"] * len(columns), start[1] + [column[0] for column in columns]]
    rows += [start[2] + [column[1] for column in columns], start[3] + [column[2] for column in columns]]
    for n in range(COUNT):
        numbers = [str(value) for value in JOINTS[n].ravel().tolist()]
        second = [""] * (len(columns) - len(numbers))
        place = [*before, name_of(n)] if cut else [f"labeled-data/mouse/{name_of(n)}"]
        rows.append([*place, *numbers, *second])
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows if animals else [rows[0], *rows[2:]])
    return path


def write_wide(path: Path, spell: str = "{}_{}") -> Path:
    header = ["file_name", *(spell.format(name, part) for name in NAMES for part in "xy")]
    rows = [[name_of(n), *map(str, JOINTS[n].ravel().tolist())] for n in range(COUNT)]
    path.write_text("\n".join(",".join(row) for row in [header, *rows]))
    return path


def write_long(path: Path) -> Path:
    rows = [
        f"{name_of(n)},{name},{JOINTS[n][j][0]},{JOINTS[n][j][1]}" for n in range(COUNT) for j, name in enumerate(NAMES)
    ]
    path.write_text("\n".join(["file_name,bodypart,x,y", *rows]))
    return path


def write_mapping(path: Path) -> Path:
    joints = [dict(zip(NAMES, JOINTS[n].tolist(), strict=True)) for n in range(COUNT)]
    path.write_text("\n".join(json.dumps({"file_name": name_of(n), "keypoints": own}) for n, own in enumerate(joints)))
    return path


JOINT_FILES: dict[str, Callable[[Path], Path]] = {
    "coco of CVAT": lambda folder: write_coco(folder / "a.json"),
    "coco of Label Studio": lambda folder: write_coco(folder / "result.json", "images/"),
    "coco of Label Studio on Windows": lambda folder: write_coco(folder / "w.json", "images\\"),
    "coco of FiftyOne": lambda folder: write_coco(folder / "f.json", "/home/me/data/", supercategory=None),
    "coco of Roboflow": lambda folder: write_roboflow(folder / "r.json"),
    "coco of SLEAP": lambda folder: write_coco(folder / "s.json", score=0.9, bbox=None),
    "coco with empty entries": lambda folder: write_coco(folder / "c.json", iscrowd=0, area=12.5, segmentation=[]),
    "deeplabcut": lambda folder: write_deeplabcut(folder / "CollectedData_Ann.csv"),
    "deeplabcut, path in three columns": lambda folder: write_deeplabcut(folder / "d.csv", cut=True),
    "deeplabcut of two animals": lambda folder: write_deeplabcut(folder / "d.csv", ("one", "two")),
    "wide": lambda folder: write_wide(folder / "w.csv"),
    "wide with points": lambda folder: write_wide(folder / "w.csv", "{}.{}"),
    "long": lambda folder: write_long(folder / "l.csv"),
    "named in JSON": lambda folder: write_mapping(folder / "m.jsonl"),
}


@pytest.mark.parametrize("name", JOINT_FILES)
def test_joints_of_any_format_are_the_same(name: str, photos: Path, tmp_path: Path) -> None:
    source = Folder(photos, JOINT_FILES[name](tmp_path), "keypoints")
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.details["joints"] == list(NAMES)
    read = [row for row in source._read() if not isinstance(row, DataError)]
    assert [row.name for row in read] == [name_of(n) for n in range(COUNT)]
    assert np.array([row.label for row in read])[..., :2] == pytest.approx(JOINTS)


def test_coco_gives_boxes_classes_and_attributes(photos: Path, tmp_path: Path) -> None:
    labels = write_coco(tmp_path / "a.json")
    boxes = [row.label for row in Folder(photos, labels, "boxes")._read()]  # type: ignore[union-attr]
    x, y, width, height = box_of(4)
    corners = np.array([x, y, x + width, y + height]) / np.array([*SIZE, *SIZE])
    assert boxes[4][0].split()[0] == "mouse"
    assert [float(text) for text in boxes[4][0].split()[1:]] == pytest.approx(corners.tolist(), abs=1e-5)
    ages = [row.label for row in Folder(photos, labels, label_columns=("age",))._read()]  # type: ignore[union-attr]
    assert ages == [20 + n for n in range(COUNT)]


def test_coco_entries_without_joints_are_counted(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(write_coco(tmp_path / "a.json").read_text())
    content["annotations"][3]["keypoints"] = [0] * 12
    content["annotations"][5] |= {"iscrowd": 1}
    (tmp_path / "a.json").write_text(json.dumps(content))
    dataset = Folder(photos, tmp_path / "a.json", "keypoints").prepare(tmp_path / "set")
    assert sum(dataset.info.counts.values()) == COUNT - 2
    assert "2 rows with no keypoints are left out" in capsys.readouterr().err
    assert dataset.info.details["left_out"] == {"no keypoints": 2}


@pytest.mark.parametrize("named", [True, False])
def test_yolo_boxes_and_joints(named: bool, photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "labels"
    folder.mkdir()
    if named:
        (folder / "classes.txt").write_text("cat\nmouse\n")
    for n in range(COUNT):
        x, y, width, height = box_of(n)
        middle = [(x + width / 2) / SIZE[0], (y + height / 2) / SIZE[1], width / SIZE[0], height / SIZE[1]]
        joints = [value for x, y in JOINTS[n] for value in (x / SIZE[0], y / SIZE[1], 2)]
        (folder / f"img{n:03d}.txt").write_text(" ".join(map(str, [1, *middle, *joints])))
    boxes = [row.label for row in Folder(photos, folder, "boxes")._read()]  # type: ignore[union-attr]
    assert boxes[2][0].startswith("mouse " if named else "1 ")
    joints = [row.label for row in Folder(photos, folder, "keypoints")._read()]  # type: ignore[union-attr]
    assert np.array(joints)[..., :2] == pytest.approx(JOINTS)
    (folder / "img003.txt").write_text("1 100 50 20 20")
    with pytest.raises(DataError, match="should be shares of the sides, 0 to 1"):
        Folder(photos, folder, "boxes").prepare(tmp_path / "set")


@pytest.mark.parametrize("suffix", [".xlsx", ".parquet"])
def test_tables_of_other_programs(suffix: str, photos: Path, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"file_name": [name_of(n) for n in range(COUNT)], "value": [1.5 * n for n in range(COUNT)]})
    path = tmp_path / f"labels{suffix}"
    if suffix == ".xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(path, index=False)
    else:
        frame.to_parquet(path)
    read = [row.label for row in Folder(photos, path)._read()]  # type: ignore[union-attr]
    assert read == [1.5 * n for n in range(COUNT)]
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError) as refused:
        Folder(photos, path).prepare(tmp_path / "set")
    assert "\n" not in str(refused.value)


def test_a_format_is_named_where_it_is_not_recognised(photos: Path, tmp_path: Path) -> None:
    labels = write_coco(tmp_path / "labels.txt")
    with pytest.raises(UserError, match=r"labels\.txt"):
        Folder(photos, labels, "keypoints").prepare(tmp_path / "set")
    assert len(list(Folder(photos, labels, "keypoints", format="coco")._read())) == COUNT


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "should be COCO's JSON, with lists of images and annotations"),
        ('{"images": [], "annotations": []}', "lists no images"),
        ('{"images": [{"id": 1}, {"id": 1}], "annotations": []}', "the image id 1 is listed twice"),
        ('{"images": [], "annotations": [{"image_id": 7}]}', "no entry of images has its image_id 7"),
        ('{"images": [{"id": 1}], "annotations": [{"image_id": 1, "bbox": [1, 2]}]}', "the bbox should be 4 numbers"),
        (
            '{"images": [{"id": 1, "file_name": "../x"}], "annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]}',
            "relative",
        ),
    ],
)
def test_broken_coco_files(content: str, message: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(DataError, match=message) as refused:
        Folder(photos, tmp_path / "a.json", "boxes").prepare(tmp_path / "set")
    assert "\n" not in str(refused.value)


def test_a_missing_image_names_what_lies_there(photos: Path, tmp_path: Path) -> None:
    for name, hint in (
        ("img001.jpg", "there is img001.png: give names with the suffix"),
        ("IMG001.PNG", "there is img001.png, in another case"),
        ("img999.png", "is missing; add it, or delete the line"),
    ):
        (tmp_path / "t.csv").write_text(f"file_name,value\n{name},5\n")
        with pytest.raises(DataError, match=hint):
            Folder(photos, tmp_path / "t.csv").prepare(tmp_path / "set")


def test_two_folders_of_one_name_are_not_one_image(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("file_name,caption\nvideo1/img001.png,a\nvideo2/img001.png,b\n")
    with pytest.raises(DataError, match=r"video2/img001\.png and video1/img001\.png would both be"):
        Folder(photos, tmp_path / "t.csv", "captions").prepare(tmp_path / "set")


@pytest.mark.parametrize("tool", [name for name in JOINT_FILES if name.startswith("coco of ")])
def test_coco_to_a_trained_model_in_two_commands(tool: str, photos: Path, tmp_path: Path) -> None:
    from cml.cli import main

    labels, data, run = JOINT_FILES[tool](tmp_path), str(tmp_path / "data"), str(tmp_path / "run")
    given = ["--images", str(photos), "--labels", str(labels), "--out", data]
    assert main(["prepare", "folder", "--kind", "keypoints", *given]) == 0
    options = ["--steps", "1", "--backbone", "small-cnn", "--weights", "none", "--sampler", "random(batch_size=8)"]
    sizes = ["--image-size", "32", "32", "--workers", "0"]
    assert main(["train", "pose", "--data", data, "--out", run, *options, *sizes]) == 0
    assert cml.load(run)


@pytest.mark.parametrize("suffix", [".parquet", ".xlsx", ".tsv"])
def test_judgements_of_any_format_are_the_same(suffix: str, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    rng = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", rng.normal(size=(20, 3)).astype(np.float32))
    pairs = [{"item": a, "other": b, "distance": round(float(rng.random()), 3)} for a in range(20) for b in range(a)]
    frame = pd.DataFrame(pairs)
    frame.to_csv(tmp_path / "p.csv", index=False)
    path = tmp_path / f"p{suffix}"
    if suffix == ".tsv":
        frame.to_csv(path, index=False, sep="\t")
    else:
        (frame.to_parquet if suffix == ".parquet" else frame.to_excel)(path, index=False)
    given = {"vectors": tmp_path / "v.npy"}
    sets = [
        cml.prepare("judgements", tmp_path / f"set{file.suffix}", pairs=file, **given)
        for file in (tmp_path / "p.csv", path)
    ]
    lines = [(each.folder / "train" / "metadata.jsonl").read_text() for each in sets]
    assert lines[0] == lines[1]
