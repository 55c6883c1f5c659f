"""``cml compare --protocol``: figures of every row, those of the run itself, and intervals over seeds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cml
from cml.cli import main
from cml.comparing.protocol_table import join_seeds
from cml.errors import UserError
from cml.protocols import Figure, ProtocolResult
from cml.retrieval.comparison import over_seeds

SHORT = ["--steps", "3", "--sampler", "random(batch_size=16)", "--losses", "log-ratio", "cosent"]


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cml.prepare("diabetes", tmp_path_factory.mktemp("data") / "patients").folder


def test_rows_are_measured_as_their_runs_are(
    patients: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", "value", "--data", str(patients), "--out", str(tmp_path), "--seeds", "2", *SHORT]
    assert main([*words, "--protocol", "regression(k=3)"]) == 0
    said = capsys.readouterr().out
    assert "probe mae" in said
    assert "95 % intervals over 2 seeds" in " ".join(said.split())
    made = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    found = made["protocol"]["figures"]
    assert found.keys() == {"log-ratio", "cosent"}
    runs = [cml.Run.open(tmp_path / made["folders"]["cosent"] / f"seed-{seed}") for seed in range(2)]
    measured = [run.measure("regression(k=3)").figures for run in runs]
    for row in ("knn", "probe"):
        for name in ("mae", "rmse", "r2", "spearman", "kendall"):
            seeds = [figures[row][name].value for figures in measured]
            assert found["cosent"][f"{row} {name}"] == pytest.approx(list(over_seeds(seeds)))
    assert "probe mae" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_one_seed_has_the_intervals_of_its_items() -> None:
    figures = {"knn": {"mae": Figure(2.0, 1.0, 3.0)}, "probe": {"mae": Figure(1.0, 0.5, 1.5)}}
    one = ProtocolResult("regression", figures, "Predicted; by items.")
    assert join_seeds({"a": [one]}).figures["a"] == {
        "knn mae": Figure(2.0, 1.0, 3.0),
        "probe mae": Figure(1.0, 0.5, 1.5),
    }
    assert join_seeds({"a": [one, one]}).figures["a"]["knn mae"] == Figure(2.0, 2.0, 2.0)
    assert join_seeds({"a": [one, one]}).note == "Predicted; 95 % intervals over 2 seeds (Student's t)."


def test_a_protocol_is_known_before_the_first_training(patients: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'regression'"):
        cml.compare("value", patients, tmp_path / "out", losses=["cosent"], protocol="regresion", steps=3)
    with pytest.raises(UserError, match="not measured by a 'protocol'"):
        cml.compare("value", patients, tmp_path / "out", search_space={"steps": [3, 4]}, protocol="regression")
    assert not (tmp_path / "out").exists()
