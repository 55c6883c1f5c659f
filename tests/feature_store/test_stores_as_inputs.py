"""Features of texts and of one's own functions in place of a dataset's items: trained, compared, explored, searched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.feature_store.store import FeatureStore
from cml.searching.embedding_folder import EmbeddingFolder
from cml.training.config import TrainConfig, with_options

OPTIONS: dict[str, Any] = {
    "sampler": "random(batch_size=20)", "steps": 3, "dimension": 8, "workers": 0, "device": "cpu", "quiet": True,
}  # fmt: skip
WORDS = ["--sampler", "random(batch_size=20)", "--steps", "3", "--dimension", "8", "--workers", "0", "--device", "cpu"]
SENTENCES = "sentences/all-minilm-l6-v2"


def count_colors(paths: list[Path]) -> np.ndarray:
    """A network of one's own: a histogram of each channel."""
    pixels = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    return np.array([[np.histogram(image[..., c], 6, (0, 256))[0] for c in range(3)] for image in pixels]).reshape(
        len(paths), -1
    )


def spectrum(rows: np.ndarray) -> np.ndarray:
    return np.abs(np.fft.rfft(rows, axis=1))


def call(*words: object) -> int:
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def colors(people: Path) -> FeatureStore:
    return cml.features(people, backbone=count_colors, out=people.parent / "colors", quiet=True)


@pytest.fixture(scope="module")
def run(people: Path, colors: FeatureStore) -> Path:
    folder = people.parent / "run"
    assert call("train", "pose", "--data", people, "--out", folder, "--features", colors.folder, *WORDS) == 0
    return folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(0)
    words = ["two", "three", "dogs", "cats", "run", "sleep", "on", "grass", "snow", "quickly"]
    lines = [" ".join(rng.choice(words, 4)) for _ in range(90)]
    rows = [json.dumps({"text": line, "stars": int(rng.integers(1, 6)), "lines": [line]}) for line in lines]
    (folder / "reviews.jsonl").write_text("\n".join(rows))
    cml.prepare(
        "text",
        folder / "set",
        source=folder / "reviews.jsonl",
        label_columns=("stars",),
        keep_columns=("text",),
        model="all-minilm-l6-v2",
    )
    return folder / "set"


@pytest.mark.slow
def test_a_run_on_the_features_of_a_function(
    people: Path, colors: FeatureStore, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = cml.open_run(run, device="cpu")
    assert opened.model.config.inputs.shape == (18,)
    for split, embeddings in zip(opened.splits, opened.embeddings, strict=True):
        pictures = [path for path in split.pictures if path is not None]
        np.testing.assert_array_equal(embeddings, opened.model.embed(count_colors(pictures).astype(np.float32)))
    assert set(opened.evaluate().rows) >= {"embedding", "vectors", "random", "oracle"}
    shutil.copytree(colors.folder, tmp_path / "moved")
    capsys.readouterr()
    for words in (
        ["evaluate", run, "--features", tmp_path / "moved", "--device", "cpu"],
        ["explore", run, "--out", tmp_path / "page.html", "--maps", "pca", "--device", "cpu"],
        ["report", run, "--device", "cpu"],
        ["compare", "pose", "--data", people, "--out", tmp_path / "runs", "--losses", "log-ratio", "--seeds", "1",
         "--features", colors.folder, *WORDS],
    ):  # fmt: skip
        assert call(*words) == 0, capsys.readouterr().err
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_what_new_items_need_is_said_in_one_line(
    people: Path, colors: FeatureStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "pose", "--data", people, "--out", tmp_path / "run", "--features", colors.folder, *WORDS]
    assert call(*words) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "The model takes" in line]
    assert len(said) == 1
    assert (
        "18 features of count_colors: compute those of new items by cml.features(items, backbone=count_colors"
        in said[0]
    )


def test_an_index_of_the_features_of_a_function(
    people: Path, colors: FeatureStore, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = PreparedDataset.open(people).split("query")
    store = "--features", colors.folder
    assert call("index", run, people, "--out", tmp_path / "index", "--splits", "query", *store) == 0
    capsys.readouterr()
    assert call("search", tmp_path / "index", query.paths[2], "--k", "1", "--json", *store) == 0
    assert json.loads(capsys.readouterr().out)[0]["found"][0]["item_id"] == query.item_ids[2]
    np.save(tmp_path / "rows.npy", count_colors(list(query.paths[2:3])).astype(np.float32))
    assert call("search", tmp_path / "index", tmp_path / "rows.npy", "--k", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)[0]["found"][0]["item_id"] == query.item_ids[2]
    assert call("embed", run, "--images", people, "--splits", "query", "--out", tmp_path / "embedded", *store) == 0
    np.testing.assert_allclose(
        EmbeddingFolder.open(tmp_path / "embedded").embeddings, cml.open_run(run).embeddings[0], atol=1e-6
    )


def test_a_run_on_sentence_vectors_of_a_column(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["features", "--data", texts, "--text-column", "text", "--backbone", SENTENCES, "--out", tmp_path / "store"]
    assert call(*words) == 0
    store = FeatureStore.open(tmp_path / "store")
    assert store.manifest.get("text_column") == "text"
    assert store.item_ids[: len(PreparedDataset.open(texts).split("train"))] == list(
        PreparedDataset.open(texts).split("train").item_ids
    )
    trained = cml.train("value", texts, tmp_path / "run", features=str(store.folder), **OPTIONS)
    own = cml.train("value", texts, tmp_path / "own", **OPTIONS)  # on the vectors of the dataset, by the same model
    for mine, theirs in zip(trained.embeddings, own.embeddings, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-3)
    assert "vectors" in trained.evaluate().rows
    said = [line for line in capsys.readouterr().err.splitlines() if "The model takes" in line]
    assert not said  # quiet
    new = cml.features(["three cats"], backbone=SENTENCES, out=tmp_path / "new", quiet=True)
    assert trained.model.embed(new.select()).shape == (1, 8)
    words = ["index", tmp_path / "run", texts, "--out", tmp_path / "index", "--features", store.folder]
    assert call(*words) == 0


def test_captions_are_texts_by_default(tmp_path: Path, texts: Path) -> None:
    source = texts.parent / "reviews.jsonl"
    dataset = cml.prepare("text", tmp_path / "set", source=source, kind="captions", label_columns=("text",))
    store = cml.features(dataset, backbone=SENTENCES, out=tmp_path / "store", quiet=True)
    split = dataset.split("query")
    np.testing.assert_array_equal(store.find(dataset.read_texts("query", dataset.info.label_column)).shape, len(split))
    assert dataset.read_texts("query", dataset.info.label_column) == ["\n".join(label) for label in split.labels]


def test_a_run_on_a_function_of_vectors(tmp_path: Path) -> None:
    series = cml.prepare("series", tmp_path / "series", count=120, length=32)
    store = cml.features(series, backbone=spectrum, out=tmp_path / "store", quiet=True)
    again = cml.features(series.folder, backbone=spectrum, out=tmp_path / "store", quiet=True)
    assert len(again) == len(store) == 120
    trained = cml.train("value", series, tmp_path / "run", features=str(store.folder), backbone="mlp(8)", **OPTIONS)
    rows = series.split("query").vectors
    assert rows is not None
    expected = trained.model.embed(spectrum(rows.read(np.arange(len(rows)))).astype(np.float32))
    np.testing.assert_array_equal(trained.embeddings[0], expected)


def test_what_does_not_fit_is_refused(
    people: Path, colors: FeatureStore, run: Path, texts: Path, tmp_path: Path
) -> None:
    other = cml.features(people, backbone=lambda paths: count_colors(paths) + 1, out=tmp_path / "other", quiet=True)
    with pytest.raises(UserError, match=r"was made by .*<lambda>, but .*run takes features of count_colors\. Name"):
        _ = cml.open_run(run, device="cpu", features=other.folder).dataset
    assert call("index", run, people, "--out", tmp_path / "index", "--features", other.folder) == 2
    part = cml.features(people, backbone=count_colors, out=tmp_path / "part", splits=["query"], quiet=True)
    with pytest.raises(DataError, match=r"lacks \d+ of \d+ items: .*not among the stored items"):
        cml.train("pose", people, tmp_path / "lacking", features=str(part.folder), **OPTIONS)
    shutil.copytree(run, tmp_path / "run")
    config = tmp_path / "run" / "config.json"
    config.write_text(config.read_text().replace(json.dumps(str(colors.folder)), json.dumps(str(tmp_path / "gone"))))
    with pytest.raises(
        DataError, match=r"takes features of count_colors, but their store .*gone is gone: compute them"
    ):
        _ = cml.open_run(tmp_path / "run", device="cpu").dataset
    listed = cml.features(["one", "two"], backbone=SENTENCES, out=tmp_path / "listed", quiet=True)
    with pytest.raises(UserError, match="was made of a list of texts: nothing says which column"):
        cml.train("value", texts, tmp_path / "x", features=str(listed.folder), **OPTIONS)
    with pytest.raises(UserError, match=r"metadata\.jsonl:1: keypoints should be a text\. Got"):
        cml.features(people, backbone=SENTENCES, out=tmp_path / "y", quiet=True)
    with pytest.raises(
        UserError, match=r"metadata\.jsonl:1: txt should be a text\. Got only the columns item_id, role"
    ):
        cml.features(texts, backbone=SENTENCES, text_column="txt", out=tmp_path / "y", quiet=True)
    with pytest.raises(UserError, match="'text_column' names the texts for a sentence model"):
        cml.features(people, text_column="txt", out=tmp_path / "y", quiet=True)
    config_of_store = with_options(TrainConfig(), {"features": str(colors.folder)})
    with pytest.raises(UserError, match=r"cml\.fit takes a store as its inputs"):
        cml.fit(np.ones((30, 2), np.float32), range(30), config_of_store, quiet=True)
