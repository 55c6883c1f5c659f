"""Duplicates across train and test by features: exact, named with the mend, and no false alarm on clean data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

import cml
from cml.array_types import Float64
from cml.cli import main
from cml.data_prep.sources.folder import Folder
from cml.plausibility.feature_duplicates import (
    estimate_dimension,
    find_feature_duplicates,
    find_nearest,
    match_features,
)


def unit(rows: Float64) -> Float64:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def slow_match(test: Float64, train: Float64, neighbors: int = 5) -> list[int]:
    """All distances by loops; the dimension by the mean of logarithms."""

    def between(first: Float64, second: Float64) -> float:
        return float(np.sqrt(sum((a - b) ** 2 for a, b in zip(first.tolist(), second.tolist(), strict=True))))

    sample = sorted({int(place) for place in np.linspace(0, len(train) - 1, min(len(train), 1000))})
    others = {}
    for row in range(len(train)):
        apart = sorted(float(value) for value in np.linalg.norm(train - train[row], axis=1))
        others[row] = apart[1 : neighbors + 1]
    logarithms = [
        np.log(others[row][-1] / value)
        for row in sample
        if others[row][0] > 0 and others[row][-1] > 0
        for value in others[row][:-1]
    ]
    dimension = max(1.0, 1 / float(np.mean(logarithms))) if logarithms else 1.0
    allowed = min(0.4, (0.05 / (neighbors * len(test))) ** (1 / dimension))
    found = []
    for row in test:
        apart = np.linalg.norm(train - row, axis=1)
        nearest = int(apart.argmin())
        scale = others[nearest][-1]
        found.append(nearest if scale > 0 and between(row, train[nearest]) <= allowed * scale else -1)
    return found


@pytest.mark.parametrize("dimension", [2, 12, 40])
def test_matching_2000_features_is_exact(dimension: int) -> None:
    rng = np.random.default_rng(dimension)
    train = unit(rng.normal(size=(2000, dimension)))
    test = unit(rng.normal(size=(400, dimension)))
    test[::20] = unit(train[:20] + rng.normal(size=(20, dimension)) * np.geomspace(1e-9, 1, 20)[:, None] / dimension)
    nearest, shares = match_features(test, train)
    assert nearest.tolist() == slow_match(test, train)
    assert (nearest[::20] >= 0).sum() > 2
    assert (np.isfinite(shares) == (nearest >= 0)).all()


@pytest.mark.parametrize("dimension", [2, 3, 8, 20])
def test_the_dimension_is_estimated_and_new_items_are_no_duplicates(dimension: int) -> None:
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.normal(size=(30, dimension + 1)))[0]  # the sphere within 30 numbers
        rows = unit(rng.normal(size=(700, dimension + 1))) @ turn.T
        train, test = rows[:500], rows[500:]
        ids = [str(number) for number in range(700)]
        alarms += len(find_feature_duplicates(ids[:500], train, ids[500:], test))
    estimate = estimate_dimension(find_nearest(train, train, 6)[1][:, 1:])
    assert dimension * 0.6 < estimate < dimension * 1.4
    assert alarms <= 4  # one is expected


def test_recordings_and_clusters_raise_nothing() -> None:
    rng = np.random.default_rng(0)
    walk = np.cumsum(rng.normal(size=(1000, 30)), axis=0) + 20
    drive = walk[:600], walk[660:]
    centres = rng.normal(size=(10, 30)) * rng.uniform(1, 9, (10, 1))
    clusters = centres[np.arange(1000) % 10] + rng.normal(size=(1000, 30)) * np.repeat([[0.1], [1.0]], 500, axis=0)
    clusters = rng.permutation(clusters)
    for train, test in (drive, (clusters[:600], clusters[600:])):
        ids = [str(number) for number in range(1000)]
        assert find_feature_duplicates(ids, train, ids, test) == []


@pytest.mark.parametrize(
    "train", [np.ones((30, 4)), np.zeros((30, 4)), np.full((30, 4), np.nan), np.eye(4), np.eye(30)]
)
def test_features_that_say_nothing_raise_nothing(train: Float64) -> None:
    ids = [str(number) for number in range(len(train))]
    wide = np.random.default_rng(0).normal(size=(9, train.shape[1]))
    assert find_feature_duplicates(ids, train, ids[:9] * 3, wide[: len(ids)]) == []


def photo(seed: int, size: int = 96) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (7, 7, 3), np.uint8)
    return Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("copy", ["crop", "brighter", "smaller"])
def test_a_changed_training_image_among_test_images_is_named(
    tmp_path: Path, copy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    pictures = [photo(seed) for seed in range(60)]
    pictures[50] = {
        "crop": ImageOps.crop(pictures[7], 2),
        "brighter": Image.eval(pictures[7], lambda value: min(255, int(1.04 * value + 4))),
        "smaller": pictures[7].resize((90, 90)),
    }[copy]
    lines = ["file_name,value,split"]
    for number, picture in enumerate(pictures):
        picture.save(tmp_path / "images" / f"{number:02}.jpg", quality=95)
        lines.append(f"{number:02}.jpg,{number},{'train' if number < 40 else 'query'}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data = Folder(tmp_path / "images", tmp_path / "labels.csv", split_column="split").prepare(tmp_path / "set")
    store = tmp_path / "store"
    cml.features(data.folder, backbone="efficientnet-lite0", out=store, image_size=(96, 96), quiet=True)

    def check(*more: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["check", str(data.folder), "--json", "--skip", "near-duplicates", *more]) == 0
        findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
        return findings

    (finding,) = check("--features", str(store))
    assert (finding["rule"], finding["count"], finding["total"]) == ("feature-duplicates", 1, 20)
    assert finding["examples"] == ["50.jpg and 07.jpg"]
    assert "--group-column" in finding["mend"]
    assert check() == []
    assert check("feature-duplicates", "--features", str(store)) == []


REAL: dict[str, tuple[str, str, dict[str, Any]]] = {
    "donkeycar": ("donkeycar_tub/tub.tar.gz", "source", {}),
    "lspet": ("lspet400", "source", {}),
    "coco_captions": ("coco_mini", "source", {}),
    "zind_layouts": ("zind_layouts", "source", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("source", REAL)
def test_real_data_raises_nothing(
    tmp_path: Path, source: str, real_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, setting, options = REAL[source]
    cml.prepare(source, tmp_path / "set", **{setting: real_data(name), **options})
    store = tmp_path / "store"
    cml.features(tmp_path / "set", backbone="small-cnn", weights="none", out=store, image_size=(32, 32), quiet=True)
    capsys.readouterr()
    assert main(["check", str(tmp_path / "set"), "--json", "--features", str(store), "--skip", "unknown-words"]) == 0
    found = [finding["rule"] for finding in json.loads(capsys.readouterr().out)["findings"]]
    assert found == ["near-in-order"] * (source == "zind_layouts")  # neighbours in the file show one room


def test_a_store_of_other_items_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cml.prepare("people", tmp_path / "set", count=20, size=32)
    (tmp_path / "images").mkdir()
    photo(0).save(tmp_path / "images" / "a.png")
    store = tmp_path / "store"
    cml.features(tmp_path / "images", backbone="small-cnn", weights="none", out=store, image_size=(32, 32), quiet=True)
    capsys.readouterr()
    assert main(["check", str(tmp_path / "set"), "--features", str(store)]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "lacks" in line
    assert main(["check", str(tmp_path / "set"), "--features", str(tmp_path / "images")]) == 2
    assert "is no finished feature store" in capsys.readouterr().err
