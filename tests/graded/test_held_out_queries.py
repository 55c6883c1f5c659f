"""Validation of a training on grades: queries are held out, alone or in groups, and documents are not."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import cml
from cml import UserError
from cml.cli import main
from cml.data.vectors import Vectors
from cml.graded.distance import GradedDistance
from cml.graded.held_out import hold_queries_out
from cml.items import LabelledItems
from cml.processes.ranks import Ranks
from cml.training.config import TrainConfig
from cml.training.validation import first_items_score, label_gains

Array = NDArray[Any]
RNG = np.random.default_rng(0)
QUERIES, DOCUMENTS = (RNG.normal(size=(count, 6)).astype(np.float32) for count in (60, 150))
SCORES = QUERIES[:, :2] @ DOCUMENTS[:, :2].T
MATRIX = np.where(RNG.random(SCORES.shape) < 0.2, np.digitize(SCORES, [0, 1, 2]), np.nan)
OPTIONS: dict[str, Any] = {"steps": 40, "evaluate_every": 10, "dimension": 8, "device": "cpu"}
CONFIG = TrainConfig(evaluate_every=1)


@pytest.mark.parametrize("unjudged", ["incomparable", "zero"])
@pytest.mark.parametrize("backbone", [None, ("none", "none")])
def test_the_best_validation_is_kept(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    unjudged: Any,  # noqa: ANN401
    backbone: Any,  # noqa: ANN401
) -> None:
    grades = cml.Grades.from_matrix(MATRIX, unjudged=unjudged)
    model = cml.fit((QUERIES, DOCUMENTS), grades, backbone=backbone, out=tmp_path / "run", **OPTIONS)
    assert model.history.validation_steps.tolist() == [10, 20, 30, 40]
    assert "validation holds out 8 of 60 queries, drawn at random, and ranks " in capsys.readouterr().err
    split = hold_queries_out(grades, None, CONFIG)
    names = split.validating[split.validating < 60]
    chosen = split.validating[split.validating >= 60] - 60
    truth = cml.Grades.from_matrix(MATRIX[np.ix_(names, chosen)], unjudged=unjudged)
    ranking = model.rank(QUERIES[names], DOCUMENTS[chosen])
    if unjudged == "incomparable":
        ranking = ranking.condense(truth)
    kept = 1 - ranking.evaluate(truth, ["ndcg@10"]).means["ndcg@10"]
    assert kept == pytest.approx(model.history.validation.min(), abs=1e-5)


def test_documents_stay_in_the_training() -> None:
    grades = cml.Grades.from_matrix(MATRIX)
    split = hold_queries_out(grades, None, CONFIG)
    assert split.queries == 8
    assert set(range(60, 210)) <= set(split.trained.tolist())
    held_out = set(range(60)) - set(split.trained.tolist())
    assert held_out == set(split.validating[split.validating < 60].tolist())
    judged = {60 + column for row in held_out for column in np.flatnonzero(~np.isnan(MATRIX[row])).tolist()}
    assert set(split.validating[split.validating >= 60].tolist()) == judged
    zero = hold_queries_out(cml.Grades.from_matrix(MATRIX, unjudged="zero"), None, CONFIG)
    assert len(zero.validating) == 8 + 150


def test_no_more_than_a_thousand_items_validate() -> None:
    grades = cml.Grades(np.repeat(np.arange(300), 50), np.arange(15_000), np.arange(15_000) % 3)
    for unjudged in ("incomparable", "zero"):
        grades = cml.Grades(grades.rows, grades.columns, grades.gains, unjudged=unjudged)  # type: ignore[arg-type]
        split = hold_queries_out(grades, None, CONFIG)
        assert split.queries == 19  # of 30 that are held out; 1,000 / 51
        assert len(split.trained) == 270 + 15_000
        assert len(split.validating) == (19 * 51 if unjudged == "incomparable" else 1000)


def test_whole_groups_are_held_out(capsys: pytest.CaptureFixture[str]) -> None:
    groups = np.repeat(np.arange(20), 3)
    split = hold_queries_out(cml.Grades.from_matrix(MATRIX), groups, CONFIG)
    held_out = split.validating[split.validating < 60]
    assert held_out.tolist() == list(range(51, 60))
    names = [f"q{number}" for number in range(60)]
    grades = cml.Grades.from_matrix(MATRIX, queries=names)
    by_name = dict(zip(names, QUERIES, strict=True))
    orders: list[Any] = [
        groups,
        {name: int(group) for name, group in zip(names[::-1], groups[::-1], strict=True)},
        pd.Series(groups[::-1], index=names[::-1]),
    ]
    for given in orders:
        queries = pd.Series(list(QUERIES), index=names) if isinstance(given, pd.Series) else by_name
        cml.fit((queries, DOCUMENTS), grades, groups=given, **{**OPTIONS, "steps": 10})
        assert "holds out 9 of 60 queries, whole groups" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"'groups' has no group of the query 'q0'"):
        cml.fit((by_name, DOCUMENTS), grades, groups={"q1": 0}, **OPTIONS)
    with pytest.raises(UserError, match=r"'groups' leaves 0 of 60 queries to train on"):
        cml.fit((by_name, DOCUMENTS), grades, groups=[0] * 60, **OPTIONS)


@pytest.mark.parametrize("backbone", [None, ("none", "none")])
def test_given_queries_validate_and_none_is_held_out(
    capsys: pytest.CaptureFixture[str],
    backbone: Any,  # noqa: ANN401
) -> None:
    ours, theirs = cml.Grades.from_matrix(MATRIX[:40]), cml.Grades.from_matrix(MATRIX[40:])
    options = {**OPTIONS, "evaluate_every": 0}
    model = cml.fit((QUERIES[:40], DOCUMENTS), ours, validation=(QUERIES[40:], theirs), backbone=backbone, **options)
    assert " documents for 20 of the queries given for it by nDCG@10." in capsys.readouterr().err
    assert len(model.history.validation) == 10
    ranking = model.rank(QUERIES[40:], DOCUMENTS).condense(theirs)
    kept = 1 - ranking.evaluate(theirs, ["ndcg@10"]).means["ndcg@10"]
    assert kept == pytest.approx(model.history.validation.min(), abs=1e-5)


def test_stacked_grades_are_those_of_both() -> None:
    ours, theirs = (cml.Grades.from_matrix(rows, unjudged="zero") for rows in (MATRIX[:40], MATRIX[40:]))
    whole, stacked = cml.Grades.from_matrix(MATRIX, unjudged="zero"), ours.stack(theirs)
    for name in ("rows", "columns", "gains", "distances"):
        np.testing.assert_array_equal(getattr(stacked, name), getattr(whole, name))
    assert (len(stacked.queries), len(stacked.documents), stacked.unjudged) == (60, 150, "zero")


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        (QUERIES[40:], r"'validation' of graded search takes \(queries, grades\), for the documents of the training"),
        (
            (QUERIES[40:, :5], MATRIX[40:]),
            r"'validation' must have queries of the training's shape, \(6,\). Got \(5,\)",
        ),
        ((QUERIES[40:44], MATRIX[40:44]), r"'validation' must have at least 8 queries\. Got 4 instead"),
        ((QUERIES[40:], MATRIX[40:, :9]), r"'validation' cannot be used: The grades are of 9 documents\. Got 150"),
    ],
)
def test_other_validation_is_refused(validation: Any, message: str) -> None:  # noqa: ANN401
    if isinstance(validation, tuple):
        validation = validation[0], cml.Grades.from_matrix(validation[1])
    ours = cml.Grades.from_matrix(MATRIX[:40])
    with pytest.raises(UserError, match=message):
        cml.fit((QUERIES[:40], DOCUMENTS), ours, validation=validation, **OPTIONS)


def test_queries_of_the_training_do_not_validate() -> None:
    names = [f"q{number}" for number in range(60)]
    grades = cml.Grades.from_matrix(MATRIX, queries=names)
    by_name = dict(zip(names, QUERIES, strict=True))
    others = {name: by_name[name] for name in names[30:]}
    theirs = cml.Grades.from_matrix(MATRIX[30:], queries=names[30:])
    with pytest.raises(UserError, match=r"'validation' has queries of the training, such as 'q30'"):
        cml.fit((by_name, DOCUMENTS), grades, validation=(others, theirs), **OPTIONS)


def test_the_score_is_ndcg_of_what_is_known() -> None:
    rng = np.random.default_rng(1)
    matrix = np.where(rng.random((5, 40)) < 0.7, rng.integers(0, 4, (5, 40)), np.nan).astype(float)
    matrix[3] = np.nan
    matrix[3, :2] = 0  # a query without a good document does not count
    distance = GradedDistance(cml.Grades.from_matrix(matrix))
    rows = rng.normal(size=(45, 3)).astype(np.float32)
    items = LabelledItems(Vectors(rows), distance.encode(range(45)), distance)

    class Same:
        def embed(self, inputs: Vectors) -> Array:
            return inputs.read(np.arange(len(inputs)))

    values = []
    for query in (0, 1, 2, 4):
        known = np.flatnonzero(~np.isnan(matrix[query]))
        order = known[np.argsort(np.linalg.norm(rows[5 + known] - rows[query], axis=1))][:10]
        best = sorted(matrix[query, known], reverse=True)[:10]
        discounts = [1 / math.log2(2 + rank) for rank in range(10)]
        values.append(
            sum(gain * weight for gain, weight in zip(matrix[query, order], discounts, strict=False))
            / sum(gain * weight for gain, weight in zip(best, discounts, strict=False))
        )
    score = first_items_score(Same(), items, gains=label_gains(items), ranks=Ranks())
    assert score == pytest.approx(1 - np.mean(values))


def test_the_command_validates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"q{number}" for number in range(60)], [f"d{number}" for number in range(150)]
    grades = cml.Grades.from_matrix(MATRIX, queries=names[0], documents=names[1])
    sides = (dict(zip(of, rows, strict=True)) for of, rows in zip(names, (QUERIES, DOCUMENTS), strict=True))
    cml.SearchFolder.write(tmp_path / "data", *sides, {"train": grades})
    command = ["train", "grades", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--steps", "20"]
    assert main([*command, "--evaluate-every", "5", "--patience", "3"]) == 0
    assert "kept step" in capsys.readouterr().err


def test_the_command_validates_by_another_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"q{number}" for number in range(60)], [f"d{number}" for number in range(150)]
    sides = (dict(zip(of, rows, strict=True)) for of, rows in zip(names, (QUERIES, DOCUMENTS), strict=True))
    parts = {"train": slice(0, 40), "dev": slice(40, 60)}
    grades = {
        part: cml.Grades.from_matrix(MATRIX[rows], queries=names[0][rows], documents=names[1])
        for part, rows in parts.items()
    }
    cml.SearchFolder.write(tmp_path / "data", *sides, grades)
    command = ["train", "grades", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--steps", "20"]
    assert main([*command, "--validation-split", "dev"]) == 0
    assert "validation ranks 149 documents for 20 of the queries given for it" in capsys.readouterr().err
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert main([*command[:-4], "--out", str(tmp_path / "again"), "--validation-split", "test"]) == 2
    assert "has no split 'test': it has train, dev" in capsys.readouterr().err
