"""Heads trained on a feature store: those on a frozen backbone, bit for bit, in every command that takes a store."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml import tasks
from cml.cli import main
from cml.data import images as images_module
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.feature_store.store import FeatureStore
from cml.option_types import check_options
from cml.training.config import TrainConfig, with_options

OPTIONS: dict[str, Any] = {
    "sampler": "random(batch_size=20)", "steps": 4, "dimension": 8, "workers": 0, "device": "cpu", "quiet": True,
}  # fmt: skip
SMALL = {"image_size": (32, 32), "quiet": True}
WORDS = ["--sampler", "random(batch_size=20)", "--steps", "4", "--dimension", "8", "--workers", "0", "--device", "cpu"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "people"
    cml.prepare("people", folder, count=110, size=32)
    return folder


@pytest.fixture(scope="module")
def store(people: Path) -> FeatureStore:
    return cml.features(people, out=people.parent / "store", **SMALL)


@pytest.fixture(scope="module")
def run(people: Path, store: FeatureStore) -> Path:
    words = ["train", "pose", "--data", people, "--out", people.parent / "run", "--features", store.folder, *WORDS]
    assert main([str(word) for word in words]) == 0
    return people.parent / "run"


def without_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr(images_module, "read_image", never)


def test_a_head_on_a_store_is_that_of_a_frozen_backbone(people: Path, run: Path, tmp_path: Path) -> None:
    frozen = cml.train("pose", people, tmp_path / "frozen", freeze_backbone=True, image_size=(32, 32), **OPTIONS)
    opened = cml.open_run(run, device="cpu")
    assert opened.config.train.freeze_backbone
    assert (opened.config.train.image_size, opened.config.train.crop) == ((32, 32), tasks.get("pose").recipe.crop)
    for mine, theirs in zip(opened.embeddings, frozen.embeddings, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    paths = PreparedDataset.open(people).split("query").paths
    np.testing.assert_allclose(opened.model.embed(paths), opened.embeddings[0], atol=1e-5)  # images are taken as ever


def test_training_and_evaluation_read_no_image(
    people: Path, store: FeatureStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    without_images(monkeypatch)
    trained = cml.train("pose", people, tmp_path / "run", features=str(store.folder), evaluate_every=2, **OPTIONS)
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "empty"))
    evaluation = trained.evaluate()
    assert "frozen efficientnet-lite0 at 32 x 32 pixels" in evaluation.rows
    assert not (tmp_path / "empty" / "features").exists()  # the store is enough


@pytest.mark.slow
def test_the_commands_take_a_store(
    people: Path, store: FeatureStore, run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(store.folder, tmp_path / "moved")
    for words in (
        ["evaluate", run, "--features", tmp_path / "moved", "--device", "cpu"],
        ["explore", run, "--features", tmp_path / "moved", "--out", tmp_path / "page.html", "--maps", "pca"],
        ["report", run, "--features", tmp_path / "moved", "--device", "cpu"],
    ):
        assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    half = cml.features(people, out=tmp_path / "half", dtype="float16", **SMALL)
    words = ["compare", "pose", "--data", people, "--out", tmp_path / "runs", "--losses", "log-ratio", "--seeds", "1"]
    varied = f"features={store.folder},{half.folder}"
    assert main([str(word) for word in [*words, *WORDS, "--search-space", varied, "--study", "--json"]]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert str(half.folder) in json.dumps(printed)
    configs = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("config.json")]
    assert {config["train"]["features"] for config in configs} == {str(store.folder), str(half.folder)}


def test_a_store_that_is_gone_is_said_and_features_are_computed(
    people: Path, run: Path, store: FeatureStore, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace(json.dumps(str(store.folder)), json.dumps(str(tmp_path / "gone"))))
    opened = cml.open_run(tmp_path / "run", device="cpu")
    np.testing.assert_array_equal(opened.embeddings[0], cml.open_run(run, device="cpu").embeddings[0])
    assert f"The feature store {tmp_path / 'gone'} of the run is gone" in capsys.readouterr().err


def test_what_does_not_fit_is_refused(people: Path, store: FeatureStore, run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'features' are those of a frozen backbone"):
        check_options(TrainConfig(features="x"))
    with pytest.raises(DataError, match="is no finished feature store"):
        with_options(TrainConfig(), {"features": str(people)})
    with pytest.raises(UserError, match=r"made by efficientnet-lite0 \(.* 32 x 32 pixels, .*\), but .* 48 x 48 pixels"):
        cml.train("pose", people, tmp_path / "other", features=str(store.folder), image_size=(48, 48), **OPTIONS)
    queries = cml.features(people, out=tmp_path / "queries", splits=["query"], **SMALL)
    with pytest.raises(DataError, match=r"lacks \d+ of \d+ items: .*not among the stored items"):
        cml.train("pose", people, tmp_path / "lacking", features=str(queries.folder), **OPTIONS)
    other = cml.features(people, out=tmp_path / "size", image_size=(48, 48), quiet=True)
    with pytest.raises(UserError, match=f"but the features of {run} need efficientnet-lite0"):
        _ = cml.open_run(run, device="cpu", features=other.folder).embeddings
    shutil.copytree(people, tmp_path / "people")
    path = PreparedDataset.open(tmp_path / "people").split("train").paths[3]
    Image.new("RGB", (32, 32)).save(path)
    with pytest.raises(DataError, match=rf"lacks 1 of \d+ items: .*{path.name} \(not among"):
        cml.train("pose", tmp_path / "people", tmp_path / "changed", features=str(store.folder), **OPTIONS)
    levels = np.arange(40)
    pixels = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
    config = with_options(TrainConfig(steps=2, sampler="random(batch_size=10)"), {"features": str(store.folder)})
    with pytest.raises(UserError, match="found by the files of images"):
        cml.fit(pixels, levels, config, quiet=True)


def test_fit_takes_a_store_of_any_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows, levels = rng.normal(size=(60, 5)).astype(np.float32), np.arange(60.0)
    store = cml.features(rows, backbone=lambda part: part, out=tmp_path / "rows", quiet=True)
    model = cml.fit(store, levels, **OPTIONS)
    np.testing.assert_array_equal(model.embed(store.select()), cml.fit(rows, levels, **OPTIONS).embed(rows))
