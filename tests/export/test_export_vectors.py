"""Models of vectors leave like models of images: embeddings, search index, ONNX graph, shared folder, explorer."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.data.image_list import ImageList
from cml.data.prepared_writer import write_dataset
from cml.doors.run import Run
from cml.errors import DataError, UserError
from cml.searching.embed_folder import embed_folder
from cml.searching.index_images import index_images

Floats = np.ndarray[Any, np.dtype[np.floating]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("vectors")
    dataset = cml.prepare("diabetes", folder / "set")
    return cml.train("value", dataset, folder / "run", steps=10, sampler="random(batch_size=64)", quiet=True)


def test_the_embeddings_of_a_folder_are_those_of_its_rows(run: Run, tmp_path: Path) -> None:
    items = ImageList.open(run.dataset.folder, ["train", "query"])
    embedded = embed_folder(run.model.network, items, tmp_path / "out", batch_size=100, quiet=True)
    rows = [np.load(run.dataset.folder / name / "vectors.npy") for name in ("train", "test")]
    np.testing.assert_allclose(embedded.embeddings, run.model.embed(np.concatenate(rows)), atol=1e-6)
    assert [entry["item_id"] for entry in embedded.items()] == list(items.item_ids)
    assert list(embedded.manifest["sha256"]) == ["embeddings.npy", "items.jsonl"]  # not a set's, which varies


def test_an_index_finds_a_row_itself_and_takes_only_new_ids(run: Run, tmp_path: Path) -> None:
    train = ImageList.open(run.dataset.folder, ["train"])
    index, _ = index_images(run.model, train, tmp_path / "index", run=str(run.folder), quiet=True)
    rows = np.load(run.dataset.folder / "train/vectors.npy")[:3]
    hits = index.search(run.model.embed(rows), 1)
    assert [hit[0].item_id for hit in hits] == list(train.item_ids[:3])
    both = ImageList.open(run.dataset.folder, ["train", "query"])
    index, known = index_images(run.model, both, tmp_path / "index", run=str(run.folder), add=True, quiet=True)
    assert (len(index), known) == (442, len(train))


def test_queries_that_are_the_gallery_are_listed_and_found_once(run: Run, tmp_path: Path) -> None:
    dataset = run.dataset
    items = ImageList.open(dataset.folder)
    roles = [str(columns["role"]) for columns in items.columns]
    assert dataset.info.queries_are_gallery
    assert roles == ["train"] * len(dataset.split("train")) + ["query"] * len(dataset.split("query"))
    assert len(set(items.item_ids)) == len(items) == 442
    index, _ = index_images(run.model, items, tmp_path / "index", run=str(run.folder), quiet=True)
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


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_the_onnx_graph_standardises(run: Run, tmp_path: Path, missing: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = run.model
    rows = np.load(run.dataset.folder / "test/vectors.npy")
    if missing == "mean":
        model = cml.fit(rows, rows[:, 0], missing="mean", steps=2, sampler="random(batch_size=20)", quiet=True)
        rows[2, 3] = np.nan
    from cml.export.onnx_graph import export_onnx

    written = export_onnx(model.network, tmp_path / "graph")
    session = onnxruntime.InferenceSession(str(written.path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"vectors": rows})[0], model.embed(rows), atol=1e-5)
    config = json.loads((tmp_path / "graph/config.json").read_text())
    assert config["input"]["shape"] == ["batch", 10]
    # the slow way: standardised outside by what config.json says
    mean, std = (np.array(config["in_the_graph"][name]) for name in ("mean", "std"))
    slow = (
        np.nan_to_num((rows - mean) / std) @ model.network.head.weight.detach().numpy().T
        + model.network.head.bias.detach().numpy()
    )
    slow /= np.linalg.norm(slow, axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(rows), slow, atol=1e-5)


def test_a_shared_folder_says_what_the_model_takes(run: Run, tmp_path: Path) -> None:
    run.export_hub(tmp_path / "hub")
    card = (tmp_path / "hub/README.md").read_text()
    assert "| inputs | 10 numbers |" in card
    assert "feature-extraction" in card
    rows = np.load(run.dataset.folder / "test/vectors.npy")
    np.testing.assert_array_equal(cml.load(tmp_path / "hub").embed(rows), run.model.embed(rows))


def test_the_report_shows_curves(run: Run) -> None:
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
        embed_folder(run.model.network, ImageList.open(tmp_path / "photos"), tmp_path / "out", quiet=True)
    info = DatasetInfo("other", "value", "value", "", "", "", "", {"inputs": {"kind": "vectors", "size": 3}})
    roles = ("train", "query", "gallery")
    rows = [Item(role, role, None, 1.0, vector=np.zeros(3, np.float32)) for role in roles]
    other = write_dataset(tmp_path / "other", info, rows)
    with pytest.raises(UserError, match=r"The model takes 10 numbers, but .*other holds 3 numbers"):
        embed_folder(run.model.network, ImageList.open(other.folder), tmp_path / "out", quiet=True)
    with pytest.raises(DataError, match="was trained on another dataset"):
        _ = cml.open_run(run.folder, data=other.folder).dataset


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("flag", ["--images", "--vectors"])
def test_new_rows_of_a_file_are_embedded_by_number(run: Run, tmp_path: Path, flag: str, dtype: type) -> None:
    rows = np.random.default_rng(0).normal(size=(23, 10)).astype(dtype)
    np.save(tmp_path / "new.npy", rows)
    assert main(["embed", str(run.folder), flag, str(tmp_path / "new.npy"), "--out", str(tmp_path / "out")]) == 0
    embedded = np.load(tmp_path / "out/embeddings.npy")
    np.testing.assert_allclose(embedded, run.model.embed(rows.astype(np.float32)), atol=1e-6)
    lines = (tmp_path / "out/items.jsonl").read_text().splitlines()
    assert [json.loads(line)["item_id"] for line in lines] == [str(row) for row in range(23)]


def test_new_rows_of_a_file_are_indexed_and_found(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).normal(size=(23, 10)).astype(np.float32)
    first, second, out = (str(tmp_path / name) for name in ("first.npy", "second.npy", "index"))
    np.save(first, rows[:20])
    np.save(second, rows[20:])
    assert main(["index", str(run.folder), first, "--out", out]) == 0
    assert "20 items, exact" in capsys.readouterr().out
    assert main(["index", str(run.folder), first, "--out", out, "--add"]) == 0
    assert "all 20 vectors were in the index already" in capsys.readouterr().err
    assert main(["index", str(run.folder), second, "--out", out, "--add"]) == 2
    taken = capsys.readouterr().err
    assert f"already holds an item '0', {first}; {second} has the same id. Give the new ones other ids" in taken
    assert main(["index", str(run.folder), second, "--out", out, "--add", "--prefix", "b"]) == 0
    assert "23 items" in capsys.readouterr().out
    assert main(["search", out, second, "--k", "2"]) == 0
    found = [line.split() for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("1 ")]
    assert [(words[1], words[2:]) for words in found] == [("0.0000", [f"b{row}"]) for row in range(3)]
    assert main(["search", out, second, "--k", "2", "--json"]) == 0
    paths = [hit["path"] for query in json.loads(capsys.readouterr().out) for hit in query["found"]]
    assert paths == [None] * 6


def test_hits_of_a_dataset_of_vectors_name_no_file(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train = run.dataset.folder / "train/vectors.npy"
    assert main(["index", str(run.folder), str(run.dataset.folder), "--out", str(tmp_path / "index")]) == 0
    capsys.readouterr()
    assert main(["search", str(tmp_path / "index"), str(train), "--k", "1"]) == 0
    hits = [line for line in capsys.readouterr().out.splitlines() if line.lstrip().startswith("1 ")]
    assert len(hits) == len(run.dataset.split("train"))
    assert not [line for line in hits if "npy" in line]


class _Page(HTMLParser):
    """The names of the elements of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += f" {data} "


HOSTILE = '<img src=x onerror=alert(1)>{{7*7}}"'


def test_a_page_shows_what_is_known_of_vectors_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    lines = [{"age": float(row[0]), "site": f"{HOSTILE} {n}", "dose": n / 4} for n, row in enumerate(rows)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    dataset = cml.prepare(
        "table",
        tmp_path / "set",
        source=tmp_path / "labels.jsonl",
        vectors=tmp_path / "rows.npy",
        label_columns=("age",),
        keep_columns=("site", "dose"),
        unit="years",
        query_fraction=0.5,
        test_fraction=0.8,
    )
    run = cml.train("value", dataset, tmp_path / "run", steps=20, sampler="random(batch_size=64)", quiet=True)
    cml.index(run.folder, dataset.folder, tmp_path / "index", quiet=True)
    page, queries = tmp_path / "page.html", dataset.folder / "test/vectors.npy"
    search = ["search", str(tmp_path / "index"), str(queries), "--k", "3", "--html", str(page)]
    assert main(search) == 0
    assert "expected" not in page.read_text()
    run.calibrate()
    capsys.readouterr()
    assert main(search) == 0
    printed = capsys.readouterr().out
    shown = _Page(page.read_text())
    assert not shown.names & {"img", "script", "b onerror"}
    first = json.loads((dataset.folder / "test/metadata.jsonl").read_text().splitlines()[0])
    number = int(first["item_id"])
    assert f"{first['item_id']} (row 0)" in shown.text  # the query, which is known as an item of the dataset
    assert f"row 0, label {lines[number]['age']:.6g}" in printed
    assert shown.text.count(f"{HOSTILE} {number} ") >= 2  # the query's, and that of its first hit, which is itself
    assert f" {number / 4:.6g} " in shown.text
    assert f"dose {number / 4:.6g}" in printed
    hit = cml.search(tmp_path / "index", rows[[number]], k=2)[0]
    assert dict(hit[0].columns) == {"site": f"{HOSTILE} {number}", "dose": number / 4}
    assert run.model.calibration is None or run.model.calibration.unit == "years"
    expected, low, high = (f"{float(end):.3g}" for end in run.calibrate().expect(np.array(hit[1].distance)))
    assert f" {expected}, {low} to {high} " in shown.text
    assert "Expected label distances are in years, with an interval of 90%." in shown.text
    np.save(tmp_path / "own.npy", rows[:2])
    assert main([*search[:2], str(tmp_path / "own.npy"), *search[3:]]) == 0
    assert " row 1 " in _Page(page.read_text()).text  # of a file of one's own, rows are known by their numbers


def test_further_columns_stay_with_exports(tmp_path: Path) -> None:
    from pyarrow import parquet

    lines = [{"x": n / 7, "age": n % 5, "site": f"s{n}", "id": n, "note": None if n % 2 else "n"} for n in range(40)]
    (tmp_path / "table.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    kept = ("site", "id", "note")
    table = {"source": tmp_path / "table.jsonl", "features": ("x",), "label_columns": ("age",), "keep_columns": kept}
    dataset = cml.prepare("table", tmp_path / "set", **table)
    run = cml.train("value", dataset, tmp_path / "run", steps=1, sampler="random(batch_size=16)", quiet=True)
    command = ["embed", str(run.folder), "--images", str(dataset.folder), "--out", str(tmp_path / "out")]
    assert main([*command, "--parquet", "--tsv"]) == 0
    for row in parquet.read_table(tmp_path / "out/embeddings.parquet").to_pylist():
        known = lines[int(row["id"])]
        # a column of the name of another one gets "_" at its end
        assert (row["label"], row["site"], row["id_"]) == (known["age"], known["site"], known["id"])
        assert row["note"] == (known["note"] or "")
    header, first = (line.split("\t") for line in (tmp_path / "out/metadata.tsv").read_text().splitlines()[:2])
    assert header == ["item_id", "file_name", "role", "value", "site", "id", "note"]
    assert first[4] == f"s{int(first[0])}"


def with_value(value: float) -> Floats:
    """Twelve rows of zeros with another number in one place."""
    rows = np.zeros((12, 10), np.float64)
    rows[7, 2] = value
    return rows


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "width": (
        lambda path: np.save(path, np.zeros((4, 3))),
        "The model takes 10 numbers, but .*new.npy holds 3 numbers",
    ),
    "missing": (
        lambda path: np.save(path, with_value(np.nan)),
        "new.npy: row 7, column 2 .* of the vectors should be a finite number, none may be missing. It is nan. Mend it",
    ),
    "infinite": (lambda path: np.save(path, with_value(-np.inf)), "new.npy: row 7, column 2 .* It is -inf. Mend it"),
    "too large": (lambda path: np.save(path, with_value(1e300)), "new.npy: row 7, column 2 .* It is inf. Mend it"),
    "one axis": (lambda path: np.save(path, np.zeros(10)), r"new.npy: Vectors must be an array \(N, F\) of floats"),
    "no rows": (lambda path: np.save(path, np.zeros((0, 10))), "new.npy holds no vectors"),
    "no columns": (lambda path: np.save(path, np.zeros((3, 0))), r"new.npy: Vectors must be an array \(N, F\)"),
    "complex": (lambda path: np.save(path, np.zeros((3, 10), np.complex64)), "new.npy: Vectors must be an array"),
    "texts": (lambda path: np.save(path, np.full((3, 10), "a")), "new.npy cannot be read: it holds <U1, no plain num"),
    "objects": (lambda path: np.save(path, np.full((3, 10), None)), "new.npy cannot be read: .*Python objects"),
    "text file": (lambda path: path.write_text("1,2,3"), "new.npy cannot be read: it is no .npy file"),
    "cut": (
        lambda path: (np.save(path, np.zeros((9, 10))), path.write_bytes(path.read_bytes()[:300])),
        "new.npy cannot be read",
    ),
    "nothing": (
        lambda path: None,
        r"new.npy does not exist; give a folder of images, a prepared dataset, or a \.npy file",
    ),
}


@pytest.mark.parametrize("command", ["index", "embed"])
@pytest.mark.parametrize("case", WRONG)
def test_a_file_of_wrong_vectors_is_one_line(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, case: str
) -> None:
    make, said = WRONG[case]
    make(tmp_path / "new.npy")
    given = [str(tmp_path / "new.npy")] if command == "index" else ["--vectors", str(tmp_path / "new.npy")]
    assert main([command, str(run.folder), *given, "--out", str(tmp_path / "out")]) == 2
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert re.search(said, shown[0])
    assert not list(tmp_path.glob("out/*.json*"))


def test_vectors_are_a_file(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = str(run.dataset.folder)
    assert main(["embed", str(run.folder), "--vectors", given, "--out", str(tmp_path / "out")]) == 2
    assert f"--vectors must be a .npy file. Got {given} instead." in capsys.readouterr().err


def test_a_file_may_miss_numbers_where_the_model_takes_the_mean(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    model = cml.fit(rows, rows[:, 0], missing="mean", steps=2, sampler="random(batch_size=20)", quiet=True)
    rows[5, 1] = np.nan
    np.save(tmp_path / "new.npy", rows)
    made = embed_folder(model.network, ImageList.open(tmp_path / "new.npy"), tmp_path / "out", batch_size=7, quiet=True)
    np.testing.assert_allclose(made.embeddings, model.embed(rows), atol=1e-6)
    rows[5, 1] = np.inf
    np.save(tmp_path / "new.npy", rows)
    with pytest.raises(
        UserError, match=r"new.npy: row 5, column 1 of the vectors should be a finite number. It is inf"
    ):
        embed_folder(model.network, ImageList.open(tmp_path / "new.npy"), tmp_path / "other", quiet=True)


def test_a_model_of_images_takes_no_file_of_vectors(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (20, 16, 16, 3), np.uint8)
    model = cml.fit(
        images, range(20), backbone="small-cnn", weights="none", image_size=(16, 16), steps=1, workers=0, quiet=True,
        sampler="random(batch_size=8)",
    )  # fmt: skip
    np.save(tmp_path / "new.npy", np.zeros((3, 10)))
    with pytest.raises(UserError, match=r"^The model takes images, but .*new.npy holds 10 numbers"):
        embed_folder(model.network, ImageList.open(tmp_path / "new.npy"), tmp_path / "out", quiet=True)
    with pytest.raises(
        UserError, match=r"a.png is not a folder; give a folder of images, .* or a .npy file of vectors"
    ):
        ImageList.open(tmp_path / "a.png")


IDS: dict[str, tuple[str | bytes, str]] = {
    "too few": ("a\nb\n", "ids.txt should have a line with the id of each of the 3 rows of .*new.npy. It has 2"),
    "twice": ("a\nb\na\n", "ids.txt:3: the id 'a' is that of line 1 as well"),
    "empty": ("a\n \nc\n", "ids.txt:2: an id should be printable text. Got ' ' instead"),
    "escape": ("a\nb\nc\x1b[2J\n", "ids.txt:3: an id should be printable text"),
    "bytes": (b"a\nb\n\xff\n", "ids.txt cannot be read"),
}


@pytest.mark.parametrize("case", [*IDS, "right", "no file", "folder"])
def test_ids_of_rows_come_from_a_text_file(run: Run, tmp_path: Path, case: str) -> None:
    np.save(tmp_path / "new.npy", np.zeros((3, 10)))
    listed, ids = ImageList.open(tmp_path / "new.npy"), tmp_path / "ids.txt"
    if case == "folder":
        with pytest.raises(UserError, match=r"Ids \(--ids\) are for the rows of a .npy file; the items of .* have ids"):
            ImageList.open(run.dataset.folder).with_ids(ids)
    elif case == "no file":
        with pytest.raises(DataError, match=r"ids.txt cannot be read: No such file"):
            listed.with_ids(ids)
    elif case == "right":
        ids.write_text("a\nb b\nü\n", "utf-8")
        for command, given in (("index", []), ("embed", ["--images"])):
            arguments = [str(run.folder), *given, str(tmp_path / "new.npy"), "--ids", str(ids)]
            assert main([command, *arguments, "--out", str(tmp_path / command)]) == 0
        lines = (tmp_path / "embed/items.jsonl").read_text("utf-8").splitlines()
        assert [json.loads(line)["item_id"] for line in lines] == ["a", "b b", "ü"]
        assert "b b" in cml.Index.open(tmp_path / "index")
    else:
        content, said = IDS[case]
        ids.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(DataError, match=said):
            listed.with_ids(ids)


def test_embedding_takes_images_or_vectors(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = ["--images", str(run.dataset.folder), "--vectors", str(tmp_path / "new.npy")]
    for given in ([], both):
        assert main(["embed", str(run.folder), *given, "--out", str(tmp_path / "out")]) == 2
        assert capsys.readouterr().err.startswith(
            "error: cml embed needs --images, --vectors or --shards, one of them."
        )
    assert main(["embed", str(run.folder), "--vectors", str(tmp_path / "new.npy")]) == 2
    assert capsys.readouterr().err.startswith("error: cml embed needs --out.")


def test_a_pool_may_be_a_file_of_vectors(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.load(run.dataset.folder / "train/vectors.npy")[:9]
    rows[4] += 100 * rows.std()
    np.save(tmp_path / "pool.npy", rows)
    assert main(["propose", str(run.folder), str(tmp_path / "pool.npy"), "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == ["4"]
