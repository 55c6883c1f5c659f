"""Indexing, searching and embedding by the features of a store: as of the images, of which none is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.data import images as images_module
from cml.data.prepared import PreparedDataset
from cml.feature_store.store import FeatureStore
from cml.searching.embedding_folder import EmbeddingFolder
from cml.searching.index import Index

SMALL: dict[str, Any] = {"image_size": (32, 32), "quiet": True}


@pytest.fixture(scope="module")
def store(people: Path) -> FeatureStore:
    return cml.features(people, out=people.parent / "store", **SMALL)


@pytest.fixture(scope="module")
def run(people: Path, store: FeatureStore) -> Path:
    folder = people.parent / "run"
    cml.train(
        "pose", people, folder, features=str(store.folder), sampler="random(batch_size=20)", steps=3, dimension=8,
        workers=0, device="cpu", quiet=True,
    )  # fmt: skip
    return folder


def call(*words: object) -> int:
    return main([str(word) for word in words])


def test_no_image_is_read_and_the_answers_are_those_of_the_images(
    people: Path,
    store: FeatureStore,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queries = PreparedDataset.open(people).split("query").paths[:3]
    assert call("index", run, people, "--out", tmp_path / "slow", "--splits", "gallery") == 0
    assert call("embed", run, "--images", people, "--out", tmp_path / "embedded slow") == 0
    capsys.readouterr()
    assert call("search", tmp_path / "slow", *queries, "--k", 4, "--json") == 0
    slow = json.loads(capsys.readouterr().out)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr(images_module, "read_image", never)
    monkeypatch.setattr("cml.searching.embedded_batches.read_pixels", never)
    with_store = "--features", store.folder
    assert call("index", run, people, "--out", tmp_path / "train", "--splits", "train", *with_store) == 0
    assert call("index", run, people, "--out", tmp_path / "train", "--add", "--splits", "query", *with_store) == 0
    assert len(Index.open(tmp_path / "train")) == sum(
        len(PreparedDataset.open(people).split(n)) for n in ("train", "query")
    )
    assert call("index", run, people, "--out", tmp_path / "fast", "--splits", "gallery", *with_store) == 0
    capsys.readouterr()
    assert call("search", tmp_path / "fast", *queries, "--k", 4, "--json", *with_store) == 0
    fast = json.loads(capsys.readouterr().out)
    for mine, theirs in zip(fast, slow, strict=True):
        assert [hit["item_id"] for hit in mine["found"]] == [hit["item_id"] for hit in theirs["found"]]
        np.testing.assert_allclose(
            [hit["distance"] for hit in mine["found"]], [hit["distance"] for hit in theirs["found"]], atol=1e-5
        )
    assert call("embed", run, "--images", people, "--out", tmp_path / "embedded", *with_store) == 0
    both = [EmbeddingFolder.open(tmp_path / name) for name in ("embedded", "embedded slow")]
    np.testing.assert_allclose(both[0].embeddings, both[1].embeddings, atol=1e-5)
    assert list(both[0].items()) == list(both[1].items())


def test_stores_of_other_models_and_images_are_named(
    people: Path, store: FeatureStore, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = PreparedDataset.open(people).split("query").paths[0]
    assert call("index", run, people, "--out", tmp_path / "index", "--splits", "gallery") == 0
    large = cml.features(people, out=tmp_path / "large", image_size=(48, 48), quiet=True)
    part = cml.features(people, out=tmp_path / "part", splits=["gallery"], **SMALL)
    rows = cml.prepare("diabetes", tmp_path / "rows")
    on_rows = cml.train("value", rows, tmp_path / "on rows", steps=2, sampler="random(batch_size=64)", quiet=True)
    index = "index", run, people, "--out", tmp_path / "refused"
    capsys.readouterr()
    for words, message in (
        (
            (*index, "--features", large.folder),
            f"but the features of {run} need efficientnet-lite0 (weights imagenet, 32 x 32 pixels",
        ),
        ((*index, "--features", part.folder), "items: "),
        (("search", tmp_path / "index", query, "--features", large.folder), "but the features of"),
        (("search", tmp_path / "index", query, "--features", part.folder), "not among the stored items"),
        (("embed", run, "--images", people, "--out", tmp_path / "x", "--features", part.folder), "lacks"),
        (
            ("embed", run, "--images", people, "--out", tmp_path / "x", "--features", people),
            "no finished feature store",
        ),
        (
            ("index", on_rows.folder, rows.folder, "--out", tmp_path / "x", "--features", store.folder),
            "takes 10 numbers that are no features of a store: leave --features out",
        ),
    ):
        assert call(*words) == 2, words
        error = capsys.readouterr().err.strip()
        assert message in error
        assert error.count("\n") == 0, error
    assert not (tmp_path / "refused").exists()
