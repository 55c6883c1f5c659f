"""Texts on the command line: a prepared dataset of texts, from ``cml prepare text`` to a search by a sentence."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tiny_texts import LABELS, TEXTS, tiny_transformer

import cml
from cml.cli import main
from cml.data.check_dataset import check_dataset
from cml.data.prepared_writer import Item, PreparedWriter
from cml.data.texts import Texts
from cml.errors import DataError
from cml.models.backbones.sentence_transformers import SentenceEncoder, wrap_foreign
from cml.reporting.drawing import draw_words
from cml.tuning import heads, splits

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="no sentence-transformers")

SMALL = ["--steps", "3", "--sampler", "random(batch_size=12)", "--device", "cpu"]


def name_backbone(folder: Path) -> str:
    """The small network by the path of its folder."""
    return f'sentence-transformers(model="{folder}/tiny")'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small network, a prepared dataset of texts, and a run on it."""
    folder = tmp_path_factory.mktemp("texts")
    encoder = wrap_foreign(tiny_transformer())
    assert isinstance(encoder, SentenceEncoder)
    encoder.save(folder / "tiny")
    rows = [
        {"review": f"{text} {row % 7}", "n": label} for row, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    (folder / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = ["--source", str(folder / "texts.jsonl"), "--text-column", "review", "--label-columns", "n"]
    assert main(["prepare", "text", *source, "--out", str(folder / "data")]) == 0
    backbone = ["--backbone", name_backbone(folder)]
    data = ["--data", str(folder / "data"), "--out", str(folder / "run")]
    assert main(["train", "value", *data, *backbone, *SMALL]) == 0
    return folder


def test_texts_are_the_items_of_the_dataset(folder: Path) -> None:
    dataset = cml.open_dataset(folder / "data")
    assert dataset.info.inputs.kind == "texts"
    for role in dataset.info.roles:
        split = dataset.split(role)
        assert isinstance(split.inputs, Texts)
        assert split.inputs.read(np.arange(len(split))) == [f"{TEXTS[int(n)]} {int(n) % 7}" for n in split.item_ids]
    with pytest.raises(cml.UserError, match="This needs images, but the items of the dataset are texts"):
        _ = dataset.split("train").paths
    assert check_dataset(folder / "data") == []


def test_a_run_on_texts_is_that_of_fit(folder: Path) -> None:
    run, split = cml.open_run(folder / "run", device="cpu"), cml.open_dataset(folder / "data").split("train")
    texts = [f"{TEXTS[int(n)]} {int(n) % 7}" for n in split.item_ids]
    model = cml.fit(
        texts, split.labels, backbone=name_backbone(folder), steps=3,
        sampler="random(batch_size=12)", device="cpu", quiet=True,
    )  # fmt: skip
    np.testing.assert_allclose(run.model.embed(texts), model.embed(texts), atol=1e-4)
    rows = run.evaluate().rows
    assert {"embedding", "random", "oracle"} < rows.keys()
    assert any(name.startswith("frozen sentence-transformers") for name in rows)


def test_an_evaluation_embeds_texts_once_below_a_frozen_backbone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    backbone = ["--backbone", name_backbone(folder), "--freeze-backbone"]
    data = ["--data", str(folder / "data"), "--out", str(tmp_path / "head")]
    assert main(["train", "value", *data, *backbone, *SMALL]) == 0
    run = cml.open_run(tmp_path / "head", device="cpu")
    (name, first), *_ = run.evaluate().rows["embedding"].items()
    passes: list[int] = []
    forward = SentenceEncoder.forward
    monkeypatch.setattr(SentenceEncoder, "forward", lambda *given: [passes.append(1), forward(*given)][1])
    again = cml.open_run(tmp_path / "head", device="cpu")
    assert again.evaluate().rows["embedding"][name].mean == first.mean
    assert not passes  # neither for the embedding nor for the row of frozen features
    again.model.embed(["many cats"])
    assert passes


def test_texts_are_embedded_indexed_and_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["embed", str(folder / "run"), "--images", str(folder / "data"), "--out", str(folder / "embedded")]) == 0
    )
    dataset, model = cml.open_dataset(folder / "data"), cml.load(folder / "run", device="cpu")
    split = dataset.split("train")
    rows = np.load(folder / "embedded" / "embeddings.npy")[: len(split)]
    np.testing.assert_allclose(rows, model.embed(split.inputs), atol=1e-6)
    assert main(["index", str(folder / "run"), str(folder / "data"), "--out", str(folder / "index")]) == 0
    assert main(["index", str(folder / "run"), str(folder / "data"), "--out", str(folder / "index"), "--add"]) == 0
    text = split.inputs.read(np.array([3]))[0]  # type: ignore[union-attr]
    page = folder / "page.html"
    capsys.readouterr()
    assert main(["search", str(folder / "index"), text, "--k", "1", "--json", "--html", str(page)]) == 0
    (found,) = json.loads(capsys.readouterr().out)[0]["found"]
    assert found["columns"]["text"] == text
    assert text in page.read_text()


@pytest.mark.slow
def test_a_head_is_tuned_and_explored_on_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "STOPS", (5, 10))
    monkeypatch.setattr(splits, "MOST_SPLITS", 4)
    backbone = ["--backbone", name_backbone(folder), "--freeze-backbone", "--tune", "--tune-losses", "log-ratio"]
    data = ["--data", str(folder / "data"), "--out", str(folder / "tuned"), "--device", "cpu"]
    assert main(["train", "value", *data, *backbone]) == 0
    assert main(["explore", str(folder / "tuned"), "--maps", "pca"]) == 0
    assert "many cats" in (folder / "tuned" / "explorer.html").read_text()


def test_other_backbones_and_inputs_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(folder / "data"), "--out", str(folder / "other")]
    assert main(["train", "value", *data, "--backbone", "small-cnn", "--weights", "none", *SMALL]) == 2
    assert "takes images, but the inputs are texts: choose one for texts" in capsys.readouterr().err
    np.save(folder / "rows.npy", np.zeros((3, 4), np.float32))
    assert main(["index", str(folder / "run"), str(folder / "rows.npy"), "--out", str(folder / "none")]) == 2
    assert "The model takes texts, but" in capsys.readouterr().err


def test_a_text_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    info = cml.open_dataset(folder / "data").info
    with PreparedWriter(tmp_path / "mine", info) as writer:
        for row in range(9):
            role = "query" if row > 5 else "train"
            writer.add([Item(item_id=str(row), role=role, image=None, label=float(row), extra={"text": f"text {row}"})])
        with pytest.raises(cml.UserError, match="The item 'x' has none in 'text'"):
            writer.add([Item(item_id="x", role="train", image=None, label=1.0, extra={"text": " "})])
    path = tmp_path / "mine" / "train" / "metadata.jsonl"
    path.write_text(path.read_text().replace('"text 2"', "7"))
    with pytest.raises(DataError, match=r"metadata.jsonl:3: text should be a text that is not empty. Got 7"):
        cml.open_dataset(tmp_path / "mine")
    assert len(check_dataset(tmp_path / "mine")) == 1


@pytest.mark.parametrize("text", ["many cats " * 50, "x" * 500, "naïve \x1b[2J 猫", "a\n\nb"])
def test_texts_are_drawn(text: str) -> None:
    image = draw_words(text, 64)
    assert image.size == (64, 64)
    assert len(image.getcolors() or ()) > 1
