"""Similarities of pairs against what people said of them."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cml.doors.judged_report import read_pairs
from cml.errors import DataError, UserError
from cml.retrieval.metrics import pair_spearman
from cml.retrieval.metrics.pair_spearman import compute_pair_spearman

PLACES = {"a": 0, "b": 1, "c": 2, "d": 3}


def test_one_pair_a_query_is_the_correlation_of_random_halves() -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 6, 30).astype(float)  # ratings are tied
    scores = given + 3 * rng.standard_normal(30)
    found = compute_pair_spearman([f"q{number}" for number in range(30)], scores, given, resamples=50, seed=3)
    names = sorted(f"q{number}" for number in range(30))  # as they are drawn
    drawn = np.argsort(np.random.default_rng(3).random((50, 30)), axis=1)[:, :15]
    for value, half in zip(found, drawn, strict=True):
        pairs = [int(names[number][1:]) for number in half]
        assert value == pytest.approx(stats.spearmanr(scores[pairs], given[pairs]).statistic)


def test_an_item_with_many_pairs_counts_once() -> None:
    rng = np.random.default_rng(1)
    few, many = rng.random(40), rng.random(400)
    queries = [*map(str, range(40)), *["again"] * 400]
    given = np.concatenate([few, many])
    found = compute_pair_spearman(queries, np.concatenate([few, -many]), given)
    assert np.mean(found) > 0.7  # the many disagree
    assert np.mean(compute_pair_spearman(queries, given, given)) == pytest.approx(1)
    assert np.isnan(compute_pair_spearman(queries, np.zeros(440), given)).all()


def test_too_few() -> None:
    with pytest.raises(UserError, match=r"at least 4 different first items\. Got 3"):
        compute_pair_spearman(["a", "b", "c", "a"], np.arange(4.0), np.arange(4.0))


def test_files_of_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("item,other,similarity\na,b,4.5\nc,a,0\nb,elsewhere,3\n")
    found = read_pairs(path, PLACES)
    assert (found.first.tolist(), found.second.tolist(), found.similarity.tolist()) == ([0, 2], [1, 0], [4.5, 0])
    assert "1 of 3 pairs are not of two items" in capsys.readouterr().err
    lines = tmp_path / "pairs.jsonl"
    lines.write_text('{"item": "a", "other": "d", "similarity": 2}\n')
    assert read_pairs(lines, PLACES).second.tolist() == [3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,other,similarity\na,b,high\n", "pairs.csv:2: similarity should be a finite number. Got 'high'"),
        ("item,other,similarity\na,b,nan\n", "pairs.csv:2: similarity should be a finite number"),
        ("item,other,similarity\na,a,3\n", "pairs.csv:2: 'a' is paired with itself; delete the line"),
        ("item,second,similarity\na,b,3\n", "pairs.csv:2: there is no column 'other'. There are: item, second"),
        ("item,other,similarity\na,b\n", "pairs.csv:2: should have 3 cells"),
        ("item,other,similarity\nx,y,1\n", "of its 1 pairs none is of two items among queries and gallery"),
        ("item,other,similarity\n", "lists no images"),
    ],
)
def test_broken_files_of_pairs(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_pairs(path, PLACES)


def test_examples() -> None:
    failed, tried = doctest.testmod(pair_spearman)
    assert (failed, tried > 0) == (0, True)
