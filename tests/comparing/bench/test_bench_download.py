"""The sets of the benchmark whose raw files are the user's, from small folders in their published form."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_caption_sources import coco_folder, karpathy
from test_layout_sources import write_lsun
from test_number_sources import agedb, msls, picture
from test_pose_sources import mpii_folder, mpii_people, write_mat
from tiny_suite import plan

from cml.comparing.bench import result, run, sets, suite
from cml.errors import UserError

RealData = Callable[[str], Path]


def opened(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> sets.BenchSet:
    """A set of the download tier whose raw files lie in a folder."""
    monkeypatch.setenv(suite.SETS[name].variable, str(folder))
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    sets.open_set.cache_clear()
    try:
        return sets.open_set(name, "tiny")
    finally:
        sets.open_set.cache_clear()


def mpii(folder: Path) -> Path:
    people = mpii_people(40)
    mpii_folder(folder, people)
    write_mat(folder / "mpii_human_pose_v1_u12_1.mat", people, [number // 2 for number in range(20)])
    return folder


def coco(folder: Path) -> Path:
    numbers = list(range(100, 140))
    roles = {number: ("train", "restval", "test", "val")[number % 4] for number in numbers}
    karpathy(coco_folder(folder, train=numbers[:20], val=numbers[20:]), roles)
    return folder


def ages(folder: Path) -> Path:
    parts = ("train", "train", "test", "val")
    lines = [f"{20 + number},AgeDB/{number}_A_{20 + number}_f.jpg,{parts[number % 4]}" for number in range(80)]
    for line in lines:
        picture(agedb(folder) / line.split(",")[1])
    (folder / "agedb.csv").write_text("\n".join(["age,path,split", *lines]))
    return folder


@pytest.mark.parametrize(
    ("name", "make", "distance"),
    [
        ("mpii", mpii, "keypoints"),
        ("lsun", lambda folder: write_lsun(folder, train=20, validation=40), "layout"),
        pytest.param("coco", coco, "captions", marks=pytest.mark.slow),
        ("agedb", ages, "euclidean"),
    ],
)
def test_sets_of_the_published_form_open(
    name: str, make: Callable[[Path], Path], distance: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = opened(name, make(tmp_path / "raw"), monkeypatch, tmp_path)
    assert found.label_distance.startswith(distance)
    query, gallery = found.test(3, 3)
    parts = [set(one.item_ids) for one in (found.train, found.validation, query, gallery)]
    assert all(parts)
    assert sum(map(len, parts)) == len(set.union(*parts))
    assert np.isfinite(found.test_distances).any()


def real_coco(published: Path, folder: Path) -> Path:
    """COCO's photographs and captions, those of the validation file as Karpathy's test part."""
    shutil.copytree(published, folder)
    roles = {}
    for part, role in (("train", "train"), ("val", "test")):
        listed = json.loads((folder / "annotations" / f"captions_{part}2017.json").read_text("utf-8"))
        roles |= {image["id"]: role for image in listed["images"]}
    karpathy(folder, roles)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zind", "coco"])
def test_a_set_is_run_on_real_photographs(
    name: str, real_data: RealData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = real_data("zind_layouts") if name == "zind" else real_coco(real_data("coco_mini"), tmp_path / "raw")
    found = opened(name, raw, monkeypatch, tmp_path)
    assert len(found.train) >= 50
    run.run(replace(plan(tmp_path / "results", "cosent"), sets=[name]))
    path = result.result_path(tmp_path / "results", "tiny", name, "A-small-cnn", "cosent")
    assert result.read_result(path).mean() is not None


def many_products(folder: Path, products: int = 60) -> Path:
    """Products with four photographs each, half of them for testing."""
    for name, first in (("Ebay_train.txt", 1), ("Ebay_test.txt", 1 + products // 2)):
        lines = ["image_id class_id super_class_id path\n"]
        for number in range(2 * products):
            path = f"sofa_final/{first + number // 4}_{number}.JPG"
            picture(folder / path)
            lines.append(f"{number} {first + number // 4} 1 {path}\n")
        (folder / name).write_text("".join(lines))
    return folder


def test_of_many_classes_whole_ones_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(sets.SUITES["tiny"], train=40, validation=16, queries=10, gallery=30)
    monkeypatch.setitem(sets.SUITES, "tiny", small)  # type: ignore[arg-type]
    found = opened("sop", many_products(tmp_path / "raw"), monkeypatch, tmp_path)
    query, gallery = found.test(3, 3)
    assert [len(one) for one in (found.train, found.validation, query, gallery)] == [40, 16, 10, 30]
    for part in (found.train, found.validation):
        products = [item.rpartition("/")[2].split("_")[0] for item in part.item_ids]
        assert len(set(products)) == len(products) / 4
    queried, searched = ({item.rpartition("/")[2].split("_")[0] for item in part.item_ids} for part in (query, gallery))
    assert len(queried | searched) == 10
    assert np.mean(found.test_distances == 0, axis=1).min() >= 0
    assert (found.test_distances == 0).any(axis=1).mean() > 0.9  # a query has others of its product


def test_queries_of_a_gallery_of_its_own_are_of_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(sets.SUITES["tiny"], queries=8, gallery=20)
    monkeypatch.setitem(sets.SUITES, "tiny", small)  # type: ignore[arg-type]
    raw, lines = tmp_path / "raw", []
    for number in range(160):
        role = "train" if number < 80 else ("query", "gallery")[number % 2]
        path = f"img/MEN/Tees/id_{number // 4:08d}/{number}_front.jpg"
        picture(raw / "Img" / path)
        lines.append(f"{path} id_{number // 4:08d} {role}\n")
    (raw / "Eval").mkdir()
    head = f"{len(lines)}\nimage_name item_id evaluation_status\n"
    (raw / "Eval" / "list_eval_partition.txt").write_text(head + "".join(lines))
    query, gallery = opened("in-shop", raw, monkeypatch, tmp_path).test(3, 3)
    queried, searched = ({item.split("/")[3] for item in part.item_ids} for part in (query, gallery))
    assert (len(query), len(gallery), len(searched)) == (8, 20, 10)
    assert queried <= searched


@pytest.mark.slow
def test_streets_are_drawn_by_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(sets.SUITES["tiny"], train=8, validation=8, queries=4, gallery=4)
    monkeypatch.setitem(sets.SUITES, "tiny", small)  # type: ignore[arg-type]
    raw = msls(tmp_path / "raw")
    for city in suite.SETS["msls"].settings["cities"]:
        for part in ("query", "database"):
            lines = [",key,lon,lat,ca,captured_at,pano\n"]
            for number in range(24):  # two photographs, some metres apart, at each of twelve places
                degrees = 10.0005 + number // 2 * 0.01 + number % 2 * 1e-4
                picture(raw / "train_val" / city / part / f"images/{part}{number}.jpg")
                lines.append(f"{number},{part}{number},{degrees:.5f},{degrees:.5f},90,2015,False\n")
            (raw / "train_val" / city / part / "raw.csv").write_text("".join(lines))
    found = opened("msls", raw, monkeypatch, tmp_path)
    query, gallery = found.test(3, 3)
    number = [
        {int("".join(filter(str.isdigit, Path(item).stem))) // 2 for item in one.item_ids} for one in (query, gallery)
    ]
    assert number[0] <= number[1]
    assert found.test_distances.min(axis=1).max() < 1  # every query sees something of what is in the gallery


def test_a_folder_without_the_files_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "stray.jpg")
    for name in (one for one, spec in suite.SETS.items() if spec.tier == "download"):
        with pytest.raises(UserError) as refused:
            opened(name, tmp_path, monkeypatch, tmp_path)
        assert "\n" not in str(refused.value)
        assert str(tmp_path) in str(refused.value)
    shutil.rmtree(tmp_path / "cache")
