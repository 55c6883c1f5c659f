"""False alarms: sound datasets in public formats raise nothing; nor do the sources and the data that are at hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

import cml
from cml.cli import main
from cml.data_prep.sources.coco_keypoints import COCO_JOINTS

pytestmark = pytest.mark.slow

RealData = Callable[[str], Path]
COUNT, SIDE = 60, 40
Options = dict[str, Any]


def photo(rng: np.random.Generator, side: int = SIDE) -> Image.Image:
    coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), np.uint8))
    return coarse.resize((side, side), Image.Resampling.BICUBIC)


def write_photos(folder: Path, form: str = "{:03d}.jpg", side: int = SIDE) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(COUNT):
        photo(rng, side).save(folder / form.format(number))
    return folder


def table(
    folder: Path,
    header: str,
    values: np.ndarray,
    mark: str = ",",
    decimal: str = ".",
    **options: Any,  # noqa: ANN401
) -> Options:
    """A labels file of one or more columns of numbers beside photographs."""
    images, lines = write_photos(folder / "images"), [f"file_name{mark}{header}"]
    for number, row in enumerate(np.reshape(values, (COUNT, -1)).tolist()):
        cells = [f"{cell:g}".replace(".", decimal) for cell in row]
        lines.append(mark.join([f"{number:03d}.jpg", *cells]))
    (folder / "labels.csv").write_text("\n".join(lines))
    return {"name": "folder", "images": images, "labels": folder / "labels.csv", **options}


def lines_of(folder: Path, rows: list[dict[str, Any]], side: int = SIDE, **options: Any) -> Options:  # noqa: ANN401
    images = write_photos(folder / "images", side=side)
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"name": "folder", "images": images, "labels": folder / "labels.jsonl", **options}


def ages(folder: Path) -> Options:
    """UTKFace, AgeDB: whole years."""
    years = np.random.default_rng(1).gamma(4, 9, COUNT).round().clip(1, 101)
    return table(folder, "value", years, unit="years")


def german_prices(folder: Path) -> Options:
    """A table that a spreadsheet program wrote: semicolons, decimal commas."""
    prices = np.random.default_rng(2).lognormal(4, 1, COUNT).round(2)
    return table(folder, "value", prices, ";", ",", decimal_mark=",")


def angles(folder: Path) -> Options:
    """The orientation of an object in degrees."""
    return table(folder, "angle", np.random.default_rng(3).uniform(0, 360, COUNT).round(1), kind="angle")


def head_poses(folder: Path) -> Options:
    """300W-LP, BIWI: yaw, pitch and roll in degrees."""
    turns = np.random.default_rng(4).normal(0, [35, 15, 8], (COUNT, 3)).round(2)
    return table(folder, "yaw,pitch,roll", turns, kind="rotation", label_columns=("yaw", "pitch", "roll"))


def places(folder: Path) -> Options:
    """Im2GPS: places all over the earth, longitude first."""
    rng = np.random.default_rng(5)
    earth = np.column_stack([rng.uniform(-180, 180, COUNT), np.degrees(np.arcsin(rng.uniform(-0.8, 0.9, COUNT)))])
    return table(folder, "lon,lat", earth, kind="place", label_columns=("lon", "lat"))


def city(folder: Path) -> Options:
    """Places of one city."""
    where = np.random.default_rng(6).normal([48.137, 11.575], 0.03, (COUNT, 2)).round(5)
    return table(folder, "latitude,longitude", where, kind="place")


def scores(folder: Path) -> Options:
    """LIVE, memorability: shares from 0 to 1."""
    return table(folder, "value", np.random.default_rng(7).beta(4, 2, COUNT).round(3))


def ratings(folder: Path) -> Options:
    """AVA, SCUT-FBP: stars from 1 to 5."""
    return table(folder, "value", np.random.default_rng(8).integers(1, 6, COUNT))


def temperatures(folder: Path) -> Options:
    """Degrees Celsius, below and above zero."""
    return table(folder, "value", np.random.default_rng(9).normal(4, 9, COUNT).round(1), unit="°C")


def counts(folder: Path) -> Options:
    """ShanghaiTech: people in a crowd, many of none."""
    return table(folder, "value", np.random.default_rng(10).geometric(0.02, COUNT) - 1)


def steering(folder: Path) -> Options:
    """Steering from -1 to 1, mostly straight."""
    return table(folder, "value", np.random.default_rng(11).normal(0, 0.3, COUNT).clip(-1, 1).round(3))


def classes(folder: Path) -> Options:
    """CUB-like: a class for each image."""
    return lines_of(
        folder, [{"file_name": f"{n:03d}.jpg", "class": f"bird {n % 6}"} for n in range(COUNT)], kind="classes"
    )


def captions(folder: Path) -> Options:
    """Flickr8k-like: five captions for each image."""
    words = ["dog", "cat", "boat", "man", "woman", "tree", "ball", "street", "kite", "horse"]
    rng = np.random.default_rng(12)
    rows = [
        {"file_name": f"{n:03d}.jpg", "caption": f"a {words[a]} with a {words[b]} near {n} {words[c]}s, {k}"}
        for n in range(COUNT)
        for k, (a, b, c) in enumerate(rng.integers(0, 10, (5, 3)).tolist())
    ]
    return lines_of(folder, rows, kind="captions")


def boxes(folder: Path) -> Options:
    """VOC-like: one or two boxes for each image, in pixels."""
    rng = np.random.default_rng(13)
    rows = []
    for n in range(COUNT):
        for x, y in rng.integers(0, 20, (1 + n % 2, 2)).tolist():
            rows.append({"file_name": f"{n:03d}.jpg", "class": "cat", "x0": x, "y0": y, "x1": x + 15, "y1": y + 12})
    return lines_of(folder, rows, kind="boxes")


def keypoints(folder: Path) -> Options:
    """People with x, y and a flag; some joints are hidden."""
    rng = np.random.default_rng(14)
    rows = []
    for n in range(COUNT):
        joints = [[x, y, int(k % 4 > 0) * 2] for k, (x, y) in enumerate(rng.integers(8, 110, (9, 2)).tolist())]
        rows.append({"file_name": f"{n:03d}.jpg", "keypoints": joints})
    return lines_of(folder, rows, 120, kind="keypoints")


def masks(folder: Path) -> Options:
    """VOC, Cityscapes: PNG files of ids, 255 on borders, which are ignored."""
    images = write_photos(folder / "images", "{:03d}.png")
    (folder / "masks").mkdir()
    rng = np.random.default_rng(15)
    for number in range(COUNT):
        mask = np.zeros((SIDE, SIDE), np.uint8)
        for mask_id in range(1, 4):
            x, y = rng.integers(0, SIDE - 12, 2).tolist()
            mask[y : y + 12, x : x + 12] = mask_id
            mask[y, x : x + 12] = 255
        Image.fromarray(mask).save(folder / "masks" / f"{number:03d}.png")
    return {"name": "folder", "images": images, "masks": folder / "masks", "kind": "masks", "ignore_id": 255}


def depth_photographs(folder: Path) -> Options:
    """NYU Depth: millimetres in 16 bits."""
    options = table(folder, "value", np.random.default_rng(16).uniform(0, 9, COUNT).round(2))
    rng = np.random.default_rng(17)
    lines = (folder / "labels.csv").read_text().replace(".jpg", ".png")
    (folder / "labels.csv").write_text(lines)
    for path in sorted((folder / "images").iterdir()):
        plane = rng.uniform(600, 3000) + np.outer(np.arange(SIDE), rng.uniform(50, 150, SIDE))
        Image.fromarray(plane.astype(np.uint16)).save(path.with_suffix(".png"))
        path.unlink()
    return options


def coco(folder: Path) -> Options:
    """COCO person keypoints, joints that are not labelled at (0, 0)."""
    rng = np.random.default_rng(18)
    (folder / "annotations").mkdir(parents=True)
    write_photos(folder / "val2017", "{:012d}.jpg", 160)
    photos = [{"id": n, "file_name": f"{n:012d}.jpg", "width": 160, "height": 160} for n in range(COUNT)]
    people = []
    for n in range(COUNT):
        joints = [
            [x, y, 2] if k < 12 else [0, 0, 0] for k, (x, y) in enumerate(rng.integers(20, 140, (17, 2)).tolist())
        ]
        about = {"id": n, "image_id": n, "category_id": 1, "iscrowd": 0, "area": 9000.0, "bbox": [15, 15, 130, 130]}
        people.append({**about, "keypoints": [value for joint in joints for value in joint]})
    content = {"images": photos, "annotations": people, "categories": [{"id": 1, "keypoints": list(COCO_JOINTS)}]}
    (folder / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(content))
    return {"name": "coco_keypoints", "source": folder, "query_fraction": 0.4}


def mpii(folder: Path) -> Options:
    """MPII in the form of HRNet: pixels from 1, missing joints at (-1, -1)."""
    rng = np.random.default_rng(19)
    images = write_photos(folder / "images", "{:09d}.jpg", 160)
    people = []
    for n in range(COUNT):
        joints = [[-1, -1] if k > 12 else place for k, place in enumerate(rng.integers(30, 130, (16, 2)).tolist())]
        about = {"image": f"{n:09d}.jpg", "center": [80, 80], "scale": 0.6}
        people.append({**about, "joints": joints, "joints_vis": [int(k <= 12) for k in range(16)]})
    (folder / "people.json").write_text(json.dumps(people))
    return {"name": "mpii", "annotations": folder / "people.json", "images": images, "query_fraction": 0.4}


def lsp(folder: Path) -> Options:
    """LSP Extended: joints.mat, hidden joints at (0, 0)."""
    write_photos(folder / "images", "im{:05d}.jpg", 160)
    (folder / "images" / "im00000.jpg").rename(folder / "images" / f"im{COUNT:05d}.jpg")
    joints = np.random.default_rng(20).integers(20, 140, (COUNT, 14, 3)).astype(float)
    joints[..., 2] = np.arange(14) < 11
    joints *= joints[..., 2:]
    joints[..., 2] = np.arange(14) < 11
    savemat(folder / "joints.mat", {"joints": joints.transpose(1, 2, 0)})
    return {"name": "lspet", "source": folder, "query_fraction": 0.4}


def image_folders(folder: Path) -> Options:
    """Images in folders named by class, as torchvision and the hub take them."""
    rng = np.random.default_rng(21)
    for n in range(COUNT):
        (folder / "data" / f"class {n % 6}").mkdir(parents=True, exist_ok=True)
        photo(rng).save(folder / "data" / f"class {n % 6}" / f"{n:03d}.jpg")
    return {"name": "hf", "dataset": str(folder / "data"), "kind": "classes"}


def parquet(folder: Path) -> Options:
    """Parquet files of the hub with a ClassLabel."""
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(22)
    (folder / "data").mkdir(parents=True)
    names = datasets.ClassLabel(names=["a", "b", "c", "d", "e", "f"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    rows = {"image": [photo(rng) for _ in range(COUNT)], "label": [n % 6 for n in range(COUNT)]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / "data" / "train-00000-of-00001.parquet")
    return {"name": "hf", "dataset": str(folder / "data")}


def sensors(folder: Path) -> Options:
    """A table of vectors with a label for each row."""
    rng = np.random.default_rng(23)
    folder.mkdir(parents=True)
    rows = np.column_stack([rng.normal(size=(COUNT, 4)), rng.gamma(2, 30, COUNT)]).round(3).tolist()
    lines = ["a,b,c,d,value", *(",".join(map(str, row)) for row in rows)]
    (folder / "rows.csv").write_text("\n".join(lines))
    return {"name": "table", "source": folder / "rows.csv", "features": ("a", "b", "c", "d")}


SETS: list[Callable[[Path], Options]] = [
    ages, german_prices, angles, head_poses, places, city, scores, ratings, temperatures, counts, steering, classes,
    captions, boxes, keypoints, masks, depth_photographs, coco, mpii, lsp, image_folders, parquet, sensors,
]  # fmt: skip


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["check", str(folder), "--json", "--skip", "unknown-words"]) == 0
    return [f"{finding['rule']}: {finding['what']}" for finding in json.loads(capsys.readouterr().out)["findings"]]


@pytest.mark.parametrize("make", SETS, ids=lambda make: make.__name__)
def test_sound_datasets_raise_nothing(
    tmp_path: Path, make: Callable[[Path], Options], capsys: pytest.CaptureFixture[str]
) -> None:
    options = make(tmp_path / "raw")
    if "decimal_mark" in options:
        options["decimal"] = options.pop("decimal_mark")
    cml.prepare(options.pop("name"), tmp_path / "set", **options)
    assert "Suspicious" not in capsys.readouterr().err
    assert check(tmp_path / "set", capsys) == []


REAL: dict[str, tuple[str, str, Options]] = {
    "lspet": ("lspet400", "source", {}),
    "coco_keypoints": ("coco_mini", "source", {"min_joints": 4, "min_area": 100.0}),
    "coco_captions": ("coco_mini", "source", {}),
    "zind_layouts": ("zind_layouts", "source", {}),
}
IN_ORDER = {"zind_layouts"}  # neighbours in the file show one room


@pytest.mark.parametrize("source", REAL)
def test_real_datasets_raise_nothing(
    tmp_path: Path, source: str, real_data: RealData, capsys: pytest.CaptureFixture[str]
) -> None:
    name, setting, options = REAL[source]
    cml.prepare(source, tmp_path / "set", **{setting: real_data(name), **options})
    found = [finding.partition(":")[0] for finding in check(tmp_path / "set", capsys)]
    assert found == ["near-in-order"] * (source in IN_ORDER)


def test_a_recorded_drive_raises_nothing(
    tmp_path: Path, real_data: RealData, capsys: pytest.CaptureFixture[str]
) -> None:
    cml.prepare("donkeycar", tmp_path / "set", source=real_data("donkeycar_tub") / "tub.tar.gz")
    assert check(tmp_path / "set", capsys) == []


def test_poses_of_real_people_raise_nothing(real_data: RealData) -> None:
    from cml.plausibility.label_rules import find_in_labels

    numbers = np.loadtxt(real_data("mpii_poses") / "train_joints.csv", delimiter=",", usecols=range(1, 33))
    assert len(numbers) > 100
    for column in range(32):
        assert [str(finding) for finding in find_in_labels(numbers[:, column])] == []
