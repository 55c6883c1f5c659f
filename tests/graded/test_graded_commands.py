"""The commands of graded search, from files to an index."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.cli import main
from cml.data.input_form import InputForm
from cml.doors.search_model import SearchModel
from cml.graded.ranking_evaluation import RankingEvaluation
from cml.graded.search_options import search_options
from cml.graded_runs.compare import ComparedGrades, Variant, list_variants
from cml.training.config import TrainConfig


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
    assert "embedding against untrained: ndcg@10 +" in printed
    assert "better, over 10 queries" in printed
    figures = json.loads((work / "run" / "evaluation.json").read_text())
    means = {row: each["ndcg@10"]["mean"] for row, each in figures["rows"].items()}
    assert means["embedding"] > means["untrained"] > means["random"]
    # both evaluations stand side by side
    assert main(["evaluate", str(work / "run"), "--condensed"]) == 0
    assert "left out of all rankings (--condensed)" in capsys.readouterr().out
    assert json.loads((work / "run" / "evaluation.json").read_text()) == figures
    assert (work / "run" / "evaluation_condensed.json").is_file()
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
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Grades against the best cut: [+-]0\.\d{4} \(.* to .*\): (better|worse|not shown)\.", lines[0])
    assert not any("against" in line for line in lines[1:])
    assert lines[0] in (work / "compared" / "table.md").read_text()
    assert not list((work / "compared").rglob("last.pt"))


def test_a_choice_among_equal_rows_shows_no_difference() -> None:
    """At most 5 of 100 verdicts on rows that are equally good say "better" or "worse"; plain intervals do in 9."""
    variants = [Variant("a"), *(Variant("a", cut=float(cut)) for cut in range(5))]
    rng, told = np.random.default_rng(0), 0
    for _ in range(400):
        values = np.clip(rng.normal(0.6, 0.2, (60, 1)) + rng.normal(0, 0.2, (60, len(variants))), 0, 1)
        queries = tuple(map(str, range(60)))
        rows = {
            variant.name: RankingEvaluation(queries, ("ndcg@10",), values[:, [place]])
            for place, variant in enumerate(variants)
        }
        told += not ComparedGrades(rows, variants).verdict.endswith("not shown.")
    assert told <= 0.05 * 400
    assert ComparedGrades(rows, variants).remarks == [
        "Its interval allows for the choice of both rows among 5 pairs by the same queries."
    ]


def test_variants_that_cannot_differ_are_left_out() -> None:
    names = ["q"] * 3, ["a", "b", "c"]
    losses = ["lambda-ndcg", "cosent"]
    kinds = [(one.loss, one.gains, one.cut) for one in list_variants(cml.Grades(*names, [3, 1, 0]), losses, ())]
    assert kinds == [
        ("lambda-ndcg", "linear", None),
        ("lambda-ndcg", "exponential", None),
        ("lambda-ndcg", "linear", 1.0),
        ("lambda-ndcg", "linear", 3.0),
        ("cosent", "linear", None),
        ("cosent", "linear", 1.0),
        ("cosent", "linear", 3.0),
    ]
    assert [one.name for one in list_variants(cml.Grades(*names, [1, 0, 0]), losses, ())] == losses


@pytest.mark.parametrize("name", ["cosent", "rank-n-contrast"])
def test_losses_that_say_so_use_the_order_alone(name: str) -> None:
    loss = cml.losses.get(name)
    assert loss.uses_order_alone
    points = torch.nn.functional.normalize(torch.randn(12, 4, generator=torch.Generator().manual_seed(0)))
    distances = torch.randint(0, 4, (3, 12), generator=torch.Generator().manual_seed(1)).float()
    distances.fill_diagonal_(0)
    distances[:, :3] = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    assert loss(points, distances) == loss(points, distances.exp() - 1)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_help_lists_the_defaults_that_are_used(
    work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for arguments, wanted in (
        ([], ("all-MiniLM-L6-v2", "384", "200", "0.001", "lambda-ndcg(temperature=0.2)", "queries", "True")),
        (["--data", str(work / "data")], ("none", "128", "200", "0.001", "False")),
    ):
        with pytest.raises(SystemExit):
            main([command, "grades", *arguments, "--help"])
        text = re.sub(r"[\s│|']+", " ", capsys.readouterr().out)
        for value in wanted:
            assert f"{value})" in text.replace(" )", ")"), value
        assert "(default: log-ratio)" not in text
        assert "(default: 1000)" not in text


def test_the_command_line_and_python_have_the_same_defaults(work: Path) -> None:
    queries, documents, grades = cml.SearchFolder(work / "data").split("train")
    run = ["train", "grades", "--data", str(work / "data"), "--steps", "1", "--out", str(work / "one")]
    assert main(run) == 0
    model = cml.fit((queries, documents), grades, steps=1, quiet=True)
    ours = model.run_config.train
    theirs = cml.load(work / "one").run_config.train
    assert ours.difference(theirs) == {}
    assert (ours.dimension, ours.learning_rate, ours.head_start) == (128, 1e-3, "pca")


@pytest.mark.parametrize(("has_two", "kinds"), [(False, ("texts",) * 2), (True, ("texts", "vectors"))])
def test_options_of_texts_are_those_of_frozen_features_but_for_two_networks(
    has_two: bool, kinds: tuple[Any, Any]
) -> None:
    shapes = {"vectors": (4,)}
    queries, documents = (InputForm(kind, shapes.get(kind, ())) for kind in kinds)
    suited = search_options(TrainConfig(), {}, queries, documents, has_two=has_two)
    if has_two:
        assert (suited["dimension"], suited["learning_rate"], suited["backbone"]) == (384, 1e-3, "none")
        assert not {"freeze_backbone", "steps"} & suited.keys()
        return
    assert suited["freeze_backbone"]
    assert (suited["dimension"], suited["learning_rate"], suited["steps"]) == (384, 1e-3, 200)
    whole = search_options(TrainConfig(), {"freeze_backbone": False}, queries, documents, has_two=False)
    assert not {"steps", "freeze_backbone"} & whole.keys()


def test_options_that_equal_a_default_are_chosen_too(work: Path) -> None:
    options = ["--head-start", "auto", "--learning-rate", "0.003", "--steps", "1"]
    run = ["train", "grades", "--data", str(work / "data"), "--out", str(work / "steps"), *options]
    assert main(run) == 0
    train = cml.load(work / "steps").run_config.train
    assert (train.steps, train.head_start, train.learning_rate) == (1, "auto", 3e-3)


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
