"""Files of results are read strictly, and running one again names every score that differs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_suite import ROWS, TRACK, at

from cml.cli import main
from cml.comparing.bench import check, result, table
from cml.comparing.bench.page import write_leaderboard
from cml.errors import DataError, UserError


def change(path: Path, **entries: Any) -> None:  # noqa: ANN401 - JSON
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **entries}), "utf-8")


def test_a_changed_score_is_named_when_it_is_run_again(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = at(results, "cosent")
    saved = result.read_result(path)
    runs = [run for run in saved.scores["score"] if run is not None]
    change(path, scores={**saved.scores, "score": [runs[0], runs[1] + 0.002]})
    assert main(["bench", "check", str(path), "--rerun", "2"]) == 2
    told = capsys.readouterr()
    assert told.out == f"{path}: score of run 2: {runs[1]:.6f}, in the file {runs[1] + 0.002:.6f}\n"
    assert "1 result differs when run again." in told.err
    change(path, scores={**saved.scores, "score": [runs[0], runs[1] + 0.0005]})  # rounding
    assert main(["bench", "check", str(path), "--rerun", "1"]) == 0
    assert "1 result read, 1 run again.\n" in capsys.readouterr().out


def test_what_was_never_run_is_named_too(results: Path) -> None:
    path = at(results, "rkd-distance")
    saved = result.read_result(path)
    trials = [trial + 0.01 if isinstance(trial, float) else trial for trial in saved.trials]
    scores = [[0 if value is None else value - 30 for value in row] for row in saved.query_scores]
    change(path, trials=trials, query_scores=scores)
    differences = check.rerun(path)
    assert [text.partition(":")[0] for text in differences] == [
        *(f"validation score of trial {number}" for number in range(3)),
        *(f"mean of the query scores of run {number}" for number in (1, 2)),
    ]
    change(path, settings={**saved.settings, "loss.normalize": False, "learning_rate": 0.3}, trials=saved.trials)
    assert any(text.startswith("score of run 1: ") for text in check.rerun(path))
    change(path, split="0" * 64)
    assert check.rerun(path)[0].startswith("its split is 000000000000..., that of the set here ")


def test_rows_without_trials_are_run_again(made: Path) -> None:
    for method in ROWS:
        assert check.rerun(at(made, method)) == []


def test_a_failure_is_compared(made: Path) -> None:
    saved = result.read_result(at(made, "cosent"))
    (text,) = check.compare(saved, replace(saved, failed="its loss became nan"))
    assert text == "it has scores, in the file it fails (its loss became nan)"


def test_a_check_without_a_rerun_says_what_it_cannot_show(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "check", str(made)]) == 0
    assert capsys.readouterr().out == (
        "6 results read, 0 run again. Only running results again shows whether they are true: give --rerun.\n"
    )
    assert main(["bench", "check", str(made), "--rerun", "-1"]) == 2
    assert "--rerun must be 0 or more. Got -1." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"format": 7}, "has the format 7, but this version of cml reads format 1"),
        ({"format": None}, "has the format None, but"),
        ({"suite": "2026.1"}, "is of the suite '2026.1', which this version of cml does not know"),
        ({"method": "h-ap"}, "says that it is tiny/digits/A-small-cnn/h-ap.json, which is not where it lies"),
        ({"backbone": "resnet18"}, "its track is 'A-small-cnn', which is none of the backbone 'resnet18'"),
        ({"trials": [0.5]}, "it must have 3 trials. Got 1"),
        ({"seconds": {}}, r"its seconds must be those of 'run' and 'trials'. Got \[\]"),
        ({"seconds": "none"}, "the entry 'seconds' cannot be"),
        ({"scores": {}}, "it lacks the score 'score'"),
        ({"query_scores": []}, "'query_scores' must have 2 runs. Got 0"),
        ({"query_scores": [[], []]}, "its query_scores must have one row a run"),
        ({"memory_mb": "much"}, "the entry 'memory_mb' cannot be 'much'"),
    ],
)
def test_a_wrong_entry_is_one_line(
    results: Path, entries: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = at(results, "cosent")
    change(path, **entries)
    with pytest.raises(DataError, match=reason):
        result.read_result(path)
    assert main(["bench", "check", str(path)]) == 2
    told = capsys.readouterr()
    assert told.out.count("\n") == 1
    assert "1 file cannot be used." in told.err


@pytest.mark.parametrize("length", [0, 1, 200, -3])
def test_a_half_written_file_is_one_line(results: Path, length: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = at(results, "cosent")
    path.write_bytes(path.read_bytes()[:length])
    for command in (["table", str(results)], ["page", str(results), "--out", str(results.parent / "board.html")]):
        assert main(["bench", *command]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["bench", "check", str(results)]) == 2
    assert f"{path} should hold a result of the benchmark" in capsys.readouterr().out


def test_a_large_file_is_not_read(results: Path) -> None:
    path = at(results, "cosent")
    with path.open("ab") as file:
        file.truncate(1 << 23)
    with pytest.raises(DataError, match="has 8,388,608 bytes"):
        result.read_result(path)


VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1e308,
    2**62,
    "",
    "x" * 3000,
    "../../x",
    "\x00\n",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)


@pytest.mark.parametrize("seed", range(8))
def test_changed_entries_are_shown_or_refused_in_one_line(results: Path, seed: int) -> None:
    rng, path = random.Random(seed), at(results, "cosent")
    whole = path.read_text("utf-8")
    for _ in range(12):
        saved = json.loads(whole)
        entry = rng.choice(list(saved))
        if isinstance(saved[entry], list | dict) and saved[entry] and rng.random() < 0.5:
            key = rng.choice(list(saved[entry]) if isinstance(saved[entry], dict) else range(len(saved[entry])))
            saved[entry][key] = rng.choice(VALUES)
        else:
            saved[entry] = rng.choice(VALUES)
        path.write_text(json.dumps(saved), "utf-8")
        try:
            board = table.read_board(results)
            str(board)
            board.to_json()
            board.trials()
            write_leaderboard(results, results.parent / "board.html")
        except UserError as error:
            assert "\n" not in str(error)  # noqa: PT017 - both outcomes are right


def test_a_result_of_an_unknown_set_cannot_be_run_again(results: Path) -> None:
    path = at(results, "cosent")
    change(path, set="digit")
    moved = results / "tiny" / "digit" / TRACK / path.name
    moved.parent.mkdir(parents=True)
    path.rename(moved)
    with pytest.raises(DataError, match=r"there is no set 'digit'\. Did you mean 'digits'\?"):
        check.rerun(moved)
