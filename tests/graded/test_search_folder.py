"""Folders of graded search: the files of BEIR and mteb, written, read, and refused by line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cml
from cml.errors import DataError, UserError


def write_folder(folder: Path) -> Path:
    """Two queries, three documents, four judged pairs."""
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": "q1", "text": "red shoes"}, {"_id": "q2", "text": "a hat"}]
    documents = [
        {"_id": "d1", "title": "Shoe", "text": "of red leather"},
        {"_id": "d2", "title": "", "text": "a blue hat"},
        {"_id": "d3", "text": "soup"},
    ]
    for name, rows in (("queries", queries), ("corpus", documents)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td3\t0\nq2\td2\t1\nq2\td1\t0\n"
    )
    return folder


def test_a_folder_of_beir_is_read(tmp_path: Path) -> None:
    folder = cml.SearchFolder(write_folder(tmp_path / "beir"))
    queries, documents, grades = folder.split("test")
    assert queries == {"q1": "red shoes", "q2": "a hat"}
    assert documents["d1"] == "Shoe of red leather"
    assert grades.gains.tolist() == [2, 0, 0, 1]
    assert (folder.splits, folder.unjudged) == (("test",), "incomparable")


def test_written_folders_read_the_same_and_float_gains_stay(tmp_path: Path) -> None:
    first = cml.SearchFolder(write_folder(tmp_path / "beir"))
    grades = cml.Grades(["q1", "q2"], ["d1", "d2"], [0.75, 2.5], documents=["d1", "d2", "d3"], unjudged="zero")
    written = cml.SearchFolder.write(tmp_path / "new", first.queries, first.documents, {"test": grades})
    _, documents, again = written.split("test")
    assert documents["d1"] == "Shoe of red leather"
    assert again.gains.tolist() == [0.75, 2.5]
    assert written.unjudged == "zero"
    # mteb reads whole grades from qrels, others from gains
    assert (tmp_path / "new" / "qrels" / "test.tsv").read_text().splitlines()[1:] == ["q1\td1\t1", "q2\td2\t3"]
    assert (tmp_path / "new" / "gains" / "test.tsv").read_text().splitlines()[0] == "query-id\tcorpus-id\tgain"


@pytest.mark.slow
def test_datasets_finds_the_parts_under_the_names_of_mteb(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    grades = cml.Grades(["q1", "q1"], ["d1", "d2"], [0.75, 2.0])
    texts = {"q1": "red shoes"}, {"d1": "a red shoe", "d2": "a hat"}
    cml.SearchFolder.write(tmp_path / "shop", *texts, {"test": grades})

    def load(name: str) -> list[dict[str, object]]:
        parts = datasets.load_dataset(str(tmp_path / "shop"), name, cache_dir=str(tmp_path / "cache"))
        rows: list[dict[str, object]] = next(iter(parts.values())).to_list()
        return rows

    assert load("corpus")[1] == {"_id": "d2", "text": "a hat"}
    assert load("default")[0] == {"query-id": "q1", "corpus-id": "d1", "score": 1}
    assert load("gains")[0] == {"query-id": "q1", "corpus-id": "d1", "gain": 0.75}


def test_images_are_copied_and_vectors_lie_beside_the_lines(tmp_path: Path) -> None:
    pictures = {}
    for number in range(2):
        pictures[f"d{number}"] = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (number * 90, 0, 0)).save(pictures[f"d{number}"])
    queries = {"q0": np.float32([1, 0, 2]), "q1": np.float32([0, 1, 0])}
    grades = cml.Grades(["q0", "q1"], ["d0", "d1"], [1, 2])
    folder = cml.SearchFolder.write(tmp_path / "mixed", queries, pictures, {"train": grades})
    given, documents, _ = folder.split("train")
    np.testing.assert_array_equal(np.stack([*given.values()]), np.stack([*queries.values()]))
    assert Image.open(documents["d1"]).getpixel((0, 0)) == (90, 0, 0)
    assert documents["d1"].is_relative_to(tmp_path / "mixed")
    (tmp_path / "mixed" / "queries.npy").unlink()
    with pytest.raises(DataError, match=r"queries.jsonl:1 has neither 'text' nor 'image', and .*queries.npy"):
        cml.SearchFolder(tmp_path / "mixed")


def replace_in(name: str, old: str, new: str) -> Callable[[Path], object]:
    """Change a text of a file."""
    return lambda folder: (folder / name).write_text((folder / name).read_text().replace(old, new))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (replace_in("qrels/test.tsv", "d1\t2", "d1\tnan"), r"test.tsv:2: a grade should be a finite number .* mend or"),
        (replace_in("qrels/test.tsv", "d1\t2", "d1\t-2"), r"test.tsv:2: a grade should be at least 0. Got -2 .*zero"),
        (replace_in("qrels/test.tsv", "d3\t0", "d9\t0"), r"tsv:3: the document 'd9' is unknown: .* the 3 of .*corpus"),
        (replace_in("qrels/test.tsv", "q2\td1\t0", "q2\td2\t2"), r"test.tsv:4 gives query .* but .*test.tsv:5 gives 2"),
        (replace_in("qrels/test.tsv", "d1\t2", "d1\t0\nq1\td2\tmany"), r"test.tsv:3: the grade should be a number"),
        (replace_in("queries.jsonl", '"q2"', '"q1"'), r"queries.jsonl:2: the id 'q1' is that of .*jsonl:1 too"),
        (replace_in("queries.jsonl", '"q2"', '"q 2"'), r"queries.jsonl:2: '_id' should have no white space"),
        (replace_in("corpus.jsonl", '"soup"}', '"soup"'), r"corpus.jsonl:3: the line .* should be an object in JSON"),
        (replace_in("corpus.jsonl", '"text": "soup"', '"image": "../d.png"'), r"corpus.jsonl:3: the image .*without"),
        (replace_in("corpus.jsonl", '"soup"', '" "'), r"corpus.jsonl:3: the text is empty: add it, or delete"),
        (replace_in("corpus.jsonl", '"soup"', "3"), r"corpus.jsonl:3: 'text' and 'title' should be texts. Got 3"),
        (lambda folder: (folder / "corpus.jsonl").unlink(), r"has no corpus.jsonl or documents.jsonl"),
        (lambda folder: shutil.rmtree(folder / "qrels"), r"has no judged pairs: add qrels/train.tsv"),
    ],
)
def test_faults_are_named_with_their_line(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    folder = write_folder(tmp_path / "beir")
    spoil(folder)
    with pytest.raises(DataError, match=message):
        cml.SearchFolder(folder).grades("test")


def test_swapped_columns_are_told_from_unknown_ids(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "beir")
    path = folder / "qrels" / "test.tsv"
    path.write_text("query-id\tcorpus-id\tscore\nd1\tq1\t2\nd3\tq1\t0\nd9\tq2\t1\n")
    swapped = r"test.tsv:2: the column of queries holds documents \('d1'\), and that of documents queries \('q1'\)"
    with pytest.raises(DataError, match=swapped):
        cml.SearchFolder(folder).grades("test")
    with pytest.raises(DataError, match=swapped):
        cml.Grades.read(path, queries=["q1", "q2"], documents=["d1", "d2", "d3"])
    path.write_text("corpus-id\tquery-id\tscore\nd1\tq1\t2\nd3\tq1\t0\n")
    assert cml.SearchFolder(folder).grades("test").gains.tolist() == [2, 0]
    path.write_text("score doc_id query_id\n2 d1 q1\n0 d3 q1\n")
    assert cml.SearchFolder(folder).grades("test").gains.tolist() == [2, 0]


def test_grades_that_are_all_alike_are_refused_with_a_mend_that_works(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "beir")
    (folder / "qrels" / "test.tsv").write_text("q1 0 d1 1\nq2 0 d2 1\n")
    with pytest.raises(DataError, match=r"all 2 grades are 1, .* '--unjudged zero'"):
        cml.SearchFolder(folder).grades("test")
    assert len(cml.SearchFolder(folder, unjudged="zero").grades("test")) == 2
    (folder / "qrels" / "test.tsv").write_text("q1 0 d1 nan\n")
    with pytest.raises(DataError, match=r"test.tsv:1: a grade should be a finite number .* Got nan"):
        cml.SearchFolder(folder).grades("test")
    with pytest.raises(UserError, match=r"has no split 'dev': it has test"):
        cml.SearchFolder(folder).grades("dev")
