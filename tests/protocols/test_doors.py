"""Protocols by ``Model.measure``, ``Run.measure`` and ``cml evaluate --protocol``."""

import json
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.protocols import Protocol, ProtocolResult, Regression

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(240, 5)).astype(np.float32)
VALUES = ROWS[:, 0] + 0.1 * RNG.normal(size=240)
LABELS = ("--label-columns", "value")
FAST = {"sampler": "random(batch_size=60)", "steps": 20, "quiet": True}


@pytest.fixture(scope="module")
def model() -> cml.Model:
    return cml.fit(ROWS[:160], VALUES[:160], **FAST)  # type: ignore[arg-type]


def test_a_model_is_measured_with_and_without_a_gallery(model: cml.Model) -> None:
    alone = model.measure("regression(k=3)", ROWS[160:], VALUES[160:])
    beside = model.measure(Regression(k=3), ROWS[160:], VALUES[160:], ROWS[:160], VALUES[:160])
    assert "from the other queries: knn is the mean of 3 neighbours" in alone.note
    assert "from those of 160 other items" in beside.note
    assert beside.figures["probe"]["spearman"].value > 0.8
    assert alone.figures != beside.figures
    classes = (VALUES[160:] > 0).astype(int)
    found = model.measure("few-shot(shots=[1], ways=2, episodes=20)", ROWS[160:], classes, label_distance="classes")
    assert found.figures["embedding"]["accuracy@1"].value > 0.5
    with pytest.raises(
        cml.UserError, match=r"A protocol is a name, such as 'regression', or a Protocol. Got 3 instead"
    ):
        model.measure(3, ROWS, VALUES)  # type: ignore[arg-type]


def test_a_protocol_of_ones_own_is_registered(model: cml.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cml.protocols.registry, "_entries", dict(cml.protocols.registry._entries))

    @cml.protocols.register("count-items")
    class Count(Protocol):
        def measure(self, distance, queries, gallery=None) -> ProtocolResult:  # type: ignore[no-untyped-def] # noqa: ANN001
            return ProtocolResult("count-items", {"embedding": {}}, f"{len(queries)} items")

    assert model.measure("count-items", ROWS[:7], VALUES[:7]).note == "7 items"


def test_the_command_measures_the_queries_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    lines = [",".join(f"{number:.4f}" for number in [*row, value]) for row, value in zip(ROWS, VALUES, strict=True)]
    table.write_text("\n".join(["a,b,c,d,e,value", *lines]))
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    assert (
        main(
            ["prepare", "table", "--source", str(table), "--features", "a", "b", "c", "d", "e", *LABELS, "--out", data]
        )
        == 0
    )
    options = ["--steps", "20", "--sampler", "random(batch_size=60)"]
    assert main(["train", "value", "--data", data, "--out", run, *options]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--protocol", "regression(k=3)", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    value, low, high = printed["figures"]["probe"]["mae"]
    assert 0 < low < value < high < 0.3
    opened = cml.open_run(run)
    trained = len(opened.dataset.split("train"))
    assert f"{len(opened.queries)} queries predicted from those of {trained} other items" in printed["note"]
    assert opened.measure(Regression(k=3)).to_json() == printed
    assert main(["evaluate", run, "--protocol", "verification"]) == 2
    assert "needs labels that are classes" in capsys.readouterr().err
