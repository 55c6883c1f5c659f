"""The rules of joints and boxes, the same in all sources: flags, missing ones, corners, shares of an image's sides."""

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
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.coco_keypoints import COCO_JOINTS
from cml.errors import DataError

COUNT, SIDE = 16, 160
Person = list[list[float]]
Make = Callable[[int], Person]


def person(number: int, joints: int = 6) -> Person:
    rng = np.random.default_rng(number)
    return [[x, y, 1.0] for x, y in rng.integers(20, SIDE - 20, (joints, 2)).tolist()]


def write_photos(folder: Path, form: str) -> None:
    folder.mkdir(parents=True)
    for number in range(COUNT):
        pixels = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        Image.fromarray(pixels).save(folder / form.format(number))


def prepare_folder(folder: Path, make: Make) -> PreparedDataset:
    write_photos(folder / "images", "{}.jpg")
    lines = [json.dumps({"file_name": f"{n}.jpg", "keypoints": make(n)}) for n in range(COUNT)]
    (folder / "people.jsonl").write_text("\n".join(lines))
    return cml.prepare(
        "folder", folder / "set", images=folder / "images", labels=folder / "people.jsonl", kind="keypoints"
    )


def prepare_coco(folder: Path, make: Make) -> PreparedDataset:
    write_photos(folder / "val2017", "{:012d}.jpg")
    photos = [{"id": n, "file_name": f"{n:012d}.jpg", "height": SIDE, "width": SIDE} for n in range(COUNT)]
    people = []
    for number in range(COUNT):
        joints = make(number)
        joints = [*joints, *person(number + 100, 17 - len(joints))] if len(joints) < 17 else joints
        keypoints = [value for x, y, flag in joints for value in (x, y, 2 * flag)]
        about = {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "area": 9000.0}
        people.append({**about, "bbox": [10, 10, 140, 140], "keypoints": keypoints})
    (folder / "annotations").mkdir()
    categories = [{"id": 1, "keypoints": list(COCO_JOINTS)}]
    content = {"images": photos, "annotations": people, "categories": categories}
    (folder / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(content))
    return cml.prepare("coco_keypoints", folder / "set", source=folder, query_fraction=0.5)


def prepare_mpii(folder: Path, make: Make) -> PreparedDataset:
    write_photos(folder / "images", "{:09d}.jpg")
    entries = []
    for number in range(COUNT):
        joints = make(number)
        joints = [*joints, *person(number + 100, 16 - len(joints))] if len(joints) < 16 else joints
        places, flags = [[x, y] for x, y, _ in joints], [flag for *_, flag in joints]
        about = {"image": f"{number:09d}.jpg", "center": [80.0, 80.0], "scale": 0.6}
        entries.append({**about, "joints": places, "joints_vis": flags})
    (folder / "people.json").write_text(json.dumps(entries))
    return cml.prepare("mpii", folder / "set", annotations=folder / "people.json", images=folder / "images")


def prepare_lspet(folder: Path, make: Make) -> PreparedDataset:
    write_photos(folder / "images", "unused{}.jpg")
    for number, path in enumerate(sorted((folder / "images").iterdir())):
        path.rename(folder / "images" / f"im{number + 1:05d}.jpg")
    people = []
    for number in range(COUNT):
        joints = make(number)
        people.append([*joints, *person(number + 100, 14 - len(joints))] if len(joints) < 14 else joints)
    savemat(folder / "joints.mat", {"joints": np.array(people).transpose(1, 2, 0)})
    return cml.prepare("lspet", folder / "set", source=folder)


SOURCES = {"folder": prepare_folder, "coco": prepare_coco, "mpii": prepare_mpii, "lspet": prepare_lspet}


def findings_of(dataset: PreparedDataset, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["check", str(dataset.folder), "--json"]) == 0
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return [finding for finding in findings if finding["rule"] != "lone-queries"]


@pytest.mark.parametrize("source", SOURCES)
def test_sound_people_raise_nothing(tmp_path: Path, source: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings_of(SOURCES[source](tmp_path, lambda n: person(n)), capsys) == []


@pytest.mark.parametrize("source", SOURCES)
def test_joints_that_are_shares_of_the_sides_are_refused(tmp_path: Path, source: str) -> None:
    def shares(number: int) -> Person:
        return [[x / SIDE, y / SIDE, 1.0] for x, y, _ in person(number, 17)][: 14 if source == "lspet" else 17]

    make: Make = shares if source != "mpii" else lambda number: shares(number)[:16]
    with pytest.raises(DataError, match="between 0 and 1; they seem to be fractions of width and height"):
        SOURCES[source](tmp_path, make)


@pytest.mark.parametrize("source", SOURCES)
def test_other_flags_are_refused(tmp_path: Path, source: str) -> None:
    def flagged(number: int) -> Person:
        return [*person(number, 5), [40.0, 50.0, 0.7 if number == 3 else 1.0]]

    with pytest.raises(DataError, match=r"should be 0(, 1)? or [12]"):
        SOURCES[source](tmp_path, flagged)


@pytest.mark.parametrize("source", ["folder", "coco", "lspet"])
@pytest.mark.parametrize("mark", [(0.0, 0.0), (-1.0, -1.0)])
def test_visible_joints_at_the_corner_are_named(
    tmp_path: Path, source: str, mark: tuple[float, float], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = SOURCES[source](
        tmp_path, lambda n: [*person(n, 5), [*mark, 1.0]] if n % 4 == 0 else person(n)
    )  # fmt: skip
    (finding,) = findings_of(dataset, capsys)
    assert (finding["rule"], finding["count"]) == ("sentinels", 4)
    assert "third number 0" in finding["mend"]


def test_one_joint_at_the_corner_is_chance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = prepare_folder(tmp_path, lambda n: [*person(n, 5), [0.0, 0.0, 1.0]] if n == 0 else person(n))
    assert findings_of(dataset, capsys) == []


@pytest.mark.parametrize("mark", [(-1.0, -1.0), (0.0, 0.0)])
def test_marks_of_missing_joints_are_no_places_in_mpii(tmp_path: Path, mark: tuple[float, float]) -> None:
    dataset = prepare_mpii(tmp_path, lambda n: [[*mark, 1.0], *person(n, 5)])
    labels = [label for role in ("train", "query", "gallery") for label in dataset.split(role).labels]
    assert len(labels) == COUNT
    assert all(label[0] == [0, 0, 0] for label in np.asarray(labels).tolist())


def box_folder(folder: Path, rows: list[str]) -> dict[str, Any]:
    write_photos(folder / "images", "{}.jpg")
    (folder / "boxes.csv").write_text("\n".join(["file_name,class,x0,y0,x1,y1", *rows]))
    return {"images": folder / "images", "labels": folder / "boxes.csv", "kind": "boxes"}


@pytest.mark.parametrize("corners", ["0.1,0.2,0.5,0.9", "0,0,0.5,1", "0.25,0,1,1"])
def test_boxes_that_are_shares_of_the_sides_are_refused(tmp_path: Path, corners: str) -> None:
    options = box_folder(tmp_path, [f"{n}.jpg,cat,{corners}" for n in range(COUNT)])
    with pytest.raises(DataError, match="corners should be in pixels, but all of them lie between 0 and 1"):
        cml.prepare("folder", tmp_path / "set", **options)


def test_a_box_of_one_pixel_at_the_corner_is_sound(tmp_path: Path) -> None:
    options = box_folder(
        tmp_path, [f"{n}.jpg,cat,0,0,{1 if n == 3 else 50},{1 if n == 3 else 60}" for n in range(COUNT)]
    )
    assert sum(cml.prepare("folder", tmp_path / "set", **options).info.counts.values()) == COUNT


@pytest.mark.parametrize("kind", ["image", "annotation"])
def test_coco_ids_that_are_listed_twice_are_refused(tmp_path: Path, kind: str) -> None:
    prepare_coco(tmp_path, lambda n: person(n))
    path = tmp_path / "annotations" / "person_keypoints_val2017.json"
    content = json.loads(path.read_text())
    content[f"{kind}s"][5]["id"] = content[f"{kind}s"][2]["id"]
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"the {kind} id 2 is listed twice"):
        cml.prepare("coco_keypoints", tmp_path / "other", source=tmp_path)


def test_joints_outside_are_said_to_be_outside_the_upright_image(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lies outside the image of 160 x 160 pixels, turned upright\."):
        prepare_folder(tmp_path, lambda n: [*person(n), [190.0, 20.0, 1.0]])
