"""Models of vectors leave like models of images: embeddings, search index, ONNX graph, shared folder, explorer."""

import json
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.data.prepared_writer import write_dataset
from cml.errors import DataError, UserError
from cml.export.embed_folder import embed_folder
from cml.export.image_list import ImageList
from cml.export.index_images import add_to_index, build_index
from cml.runs.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("vectors")
    dataset = cml.prepare("diabetes", folder / "set")
    return cml.train("value", dataset, folder / "run", steps=10, sampler="random(batch_size=64)", quiet=True)


def test_the_embeddings_of_a_folder_are_those_of_its_rows(run: Run, tmp_path: Path) -> None:
    items = ImageList.open(run.dataset.folder, ["train", "query"])
    embedded = embed_folder(run.model, items, tmp_path / "out", batch_size=100, quiet=True)
    rows = [np.load(run.dataset.folder / name / "vectors.npy") for name in ("train", "test")]
    np.testing.assert_allclose(embedded.embeddings, run.model.embed(np.concatenate(rows)), atol=1e-6)
    assert [entry["item_id"] for entry in embedded.items()] == list(items.item_ids)
    assert list(embedded.manifest["sha256"]) == ["embeddings.npy", "items.jsonl"]  # not a set's, which varies


def test_an_index_finds_a_row_itself_and_takes_only_new_ids(run: Run, tmp_path: Path) -> None:
    train = ImageList.open(run.dataset.folder, ["train"])
    index = build_index(run.model, train, tmp_path / "index", run=str(run.folder), quiet=True)
    rows = np.load(run.dataset.folder / "train/vectors.npy")[:3]
    hits = index.search(run.model.embed(rows), 1)
    assert [hit[0].item_id for hit in hits] == list(train.item_ids[:3])
    both = ImageList.open(run.dataset.folder, ["train", "query"])
    index, known = add_to_index(run.model, both, tmp_path / "index", run=str(run.folder), quiet=True)
    assert (len(index), known) == (442, len(train))


def test_queries_that_are_the_gallery_are_listed_and_found_once(run: Run, tmp_path: Path) -> None:
    dataset = run.dataset
    items = ImageList.open(dataset.folder)
    roles = [str(columns["role"]) for columns in items.columns]
    assert dataset.info.queries_are_gallery
    assert roles == ["train"] * len(dataset.split("train")) + ["query"] * len(dataset.split("query"))
    assert len(set(items.item_ids)) == len(items) == 442
    index = build_index(run.model, items, tmp_path / "index", run=str(run.folder), quiet=True)
    hits = index.search(run.model.embed(dataset.split("query").vectors), 3)
    assert [row[0].item_id for row in hits] == list(dataset.split("query").item_ids)
    assert all(len({hit.item_id for hit in row}) == 3 for row in hits)
    gallery = ImageList.open(dataset.folder, ["gallery"])
    assert gallery.item_ids == ImageList.open(dataset.folder, ["query"]).item_ids


def test_pictures_of_queries_that_are_the_gallery_are_listed_once(tmp_path: Path) -> None:
    dataset = cml.prepare("digits", tmp_path / "digits")
    items = ImageList.open(dataset.folder)
    ids = [item for role in dataset.info.roles for item in dataset.split(role).item_ids]
    assert dataset.info.queries_are_gallery
    assert list(items.item_ids) == ids


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_the_onnx_graph_standardises(run: Run, tmp_path: Path, missing: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = run.model
    rows = np.load(run.dataset.folder / "test/vectors.npy")
    if missing == "mean":
        model = cml.fit(rows, rows[:, 0], missing="mean", steps=2, sampler="random(batch_size=20)", quiet=True)
        rows[2, 3] = np.nan
    from cml.export.onnx_graph import export_onnx

    written = export_onnx(model, tmp_path / "graph")
    session = onnxruntime.InferenceSession(str(written.path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"vectors": rows})[0], model.embed(rows), atol=1e-5)
    config = json.loads((tmp_path / "graph/config.json").read_text())
    assert config["input"]["shape"] == ["batch", 10]
    # the slow way: standardised outside by what config.json says
    mean, std = (np.array(config["in_the_graph"][name]) for name in ("mean", "std"))
    slow = np.nan_to_num((rows - mean) / std) @ model.head.weight.detach().numpy().T + model.head.bias.detach().numpy()
    slow /= np.linalg.norm(slow, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(rows), slow, atol=1e-5)


def test_a_shared_folder_says_what_the_model_takes(run: Run, tmp_path: Path) -> None:
    run.export_hub(tmp_path / "hub")
    card = (tmp_path / "hub/README.md").read_text()
    assert "| inputs | 10 numbers |" in card
    assert "feature-extraction" in card
    rows = np.load(run.dataset.folder / "test/vectors.npy")
    np.testing.assert_array_equal(cml.load(tmp_path / "hub").embed(rows), run.model.embed(rows))


def test_the_pages_show_curves(run: Run) -> None:
    assert "explorer" in str(run.explore(maps=["pca"]))
    assert run.retrieval_report(queries=4, k=2).stat().st_size > 10_000


def test_what_does_not_fit_is_one_line(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    from cml.data.prepared import DatasetInfo
    from cml.data_prep import Item

    items = ImageList.open(run.dataset.folder)
    with pytest.raises(UserError, match="holds vectors, not images: they have no COCO ids"):
        items.with_coco_ids()
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "photos/a.png")
    with pytest.raises(UserError, match=r"The model takes 10 numbers, but .*photos holds images"):
        embed_folder(run.model, ImageList.open(tmp_path / "photos"), tmp_path / "out", quiet=True)
    info = DatasetInfo("other", "value", "value", "", "", "", "", {"inputs": {"kind": "vectors", "size": 3}})
    roles = ("train", "query", "gallery")
    rows = [Item(role, role, None, 1.0, vector=np.zeros(3, np.float32)) for role in roles]
    other = write_dataset(tmp_path / "other", info, rows)
    with pytest.raises(UserError, match=r"The model takes 10 numbers, but .*other holds 3 numbers"):
        embed_folder(run.model, ImageList.open(other.folder), tmp_path / "out", quiet=True)
    with pytest.raises(DataError, match="was trained on another dataset"):
        _ = cml.open_run(run.folder, data=other.folder).dataset
