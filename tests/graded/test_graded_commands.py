"""The commands of graded search, from files to an index."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.doors.search_model import SearchModel


def draw_files(folder: Path) -> Path:
    """Vectors of queries and documents, whose grades follow a few directions of many."""
    rng = np.random.default_rng(0)
    query, document = (rng.normal(size=(count, 12)).astype(np.float32) for count in (40, 80))
    directions = rng.normal(size=(12, 2))
    scores = (query @ directions) @ (document @ directions).T
    grades = np.digitize(scores, np.quantile(scores, [0.5, 0.8, 0.95]))
    folder.mkdir()
    for stem, letter, vectors in (("queries", "q", query), ("documents", "d", document)):
        np.save(folder / f"{stem}.npy", vectors)
        ids = [json.dumps({"_id": f"{letter}{number}"}) for number in range(len(vectors))]
        (folder / f"{stem}.jsonl").write_text("\n".join(ids))
    pairs = [f"q{row} 0 d{column} {grade}" for (row, column), grade in np.ndenumerate(grades)]
    (folder / "qrels.txt").write_text("\n".join(pairs))
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, and a run on them."""
    work = tmp_path_factory.mktemp("graded")
    source = draw_files(work / "files")
    assert main(["prepare", "grades", "--source", str(source), "--out", str(work / "data")]) == 0
    train = ["train", "grades", "--data", str(work / "data"), "--out", str(work / "run")]
    assert main([*train, "--steps", "60", "--dimension", "8"]) == 0
    return work


def test_preparing_splits_queries_and_is_done_once(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = cml.SearchFolder(work / "data")
    train, test = (folder.split(name) for name in ("train", "test"))
    assert (len(train.queries), len(test.queries), len(test.documents)) == (30, 10, 80)
    assert not {*train.queries} & {*test.queries}
    again = ["prepare", "grades", "--source", str(work / "files"), "--out", str(work / "data")]
    assert main(again) == 0
    assert "already prepared" in capsys.readouterr().err
    assert main([*again, "--seed", "1"]) == 2


def test_a_run_is_evaluated_beside_frozen_vectors(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trec = work / "found.trec"
    assert main(["evaluate", str(work / "run"), "--out-ranking", str(trec)]) == 0
    printed = capsys.readouterr().out
    assert "embedding less frozen: ndcg@10 +" in printed
    figures = json.loads((work / "run" / "evaluation.json").read_text())
    means = {row: each["ndcg@10"]["mean"] for row, each in figures["rows"].items()}
    assert means["embedding"] > means["frozen"] > means["random"]
    # other tools' way: the ranking that was written, by the judged pairs of the folder
    qrels = work / "data" / "qrels" / "test.tsv"
    assert main(["evaluate", "grades", "--ranking", str(trec), "--qrels", str(qrels), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"]["found.trec"]["ndcg@10"]["mean"] == pytest.approx(
        means["embedding"]
    )


def test_a_run_is_a_search_model_and_its_documents_are_indexed(work: Path) -> None:
    model = cml.load(work / "run")
    assert isinstance(model, SearchModel)
    assert main(["index", str(work / "run"), "--out", str(work / "index")]) == 0
    queries, documents, _ = cml.SearchFolder(work / "data").split("test")
    hits = cml.search(work / "index", np.stack([*queries.values()]), k=3)
    ranking = model.rank(queries, documents, k=3)
    assert [hit.item_id for hit in hits[0]] == [ranking.document_names[row] for row in ranking.documents[0]]


def test_a_page_shows_both_sides(work: Path) -> None:
    assert main(["explore", str(work / "run"), "--maps", "pca"]) == 0
    page = (work / "run" / "explorer.html").read_text(encoding="utf-8")
    assert "Q q" in page
    assert "G d0" in page


def test_losses_are_compared_with_grades_that_are_cut(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(work / "compared")
    command = ["compare", "grades", "--data", str(work / "data"), "--out", out, "--losses", "soft-target"]
    assert main([*command, "--cuts", "2", "--seeds", "1", "--steps", "5", "--dimension", "8"]) == 0
    printed = capsys.readouterr().out
    assert "soft-target, exponential less soft-target, cut at 2: ndcg@10" in printed
    assert (work / "compared" / "table.md").is_file()


def test_two_networks_make_a_run_that_loads(work: Path) -> None:
    command = ["train", "grades", "--data", str(work / "data"), "--out", str(work / "two"), "--steps", "2"]
    options = ["--query-backbone", "none", "--backbone", "mlp(8)", "--dimension", "4"]
    assert main([*command, *options]) == 0
    model = cml.load(work / "two")
    assert isinstance(model, SearchModel)
    assert model.query_model is not model
    assert (work / "two" / "queries" / "model.safetensors").is_file()
    assert main(["evaluate", str(work / "two")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "grades", "--out", "x"], "Give --source, a folder with all files"),
        (["prepare", "grades", "--source", "no", "--out", "x"], "no is not a folder: give one with queries.jsonl"),
        (["train", "grades", "--data", "{files}", "--out", "x"], "has one file of judged pairs: split it by"),
        (["evaluate", "{run}", "--split", "dev"], "has no split 'dev': it has train, test"),
        (["evaluate", "{run}", "--measures", "ndgc"], "There is no measure 'ndgc'. Did you mean"),
        (["evaluate", "grades", "--ranking", "x"], "by the judged pairs of --qrels"),
        (["explore", "{run}", "--count", "5"], "--count should leave room for documents"),
    ],
)
def test_mistakes_are_one_line(
    work: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    places: dict[str, Any] = {"files": work / "files", "run": work / "run"}
    assert main([argument.format(**places) for argument in arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert error.count("\n") == 0
