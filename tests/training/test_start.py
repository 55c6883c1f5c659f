"""Continuing from a trained model: new rows, another label distance, another loss."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import cml
from cml.cli import main

RNG = np.random.default_rng(0)
ROWS = (3 + 2 * RNG.normal(size=(200, 8))).astype(np.float32)
LABELS = ROWS[:, 0].astype(float)
OPTIONS: dict[str, Any] = {"sampler": "random(batch_size=30)", "quiet": True, "device": "cpu"}


@pytest.fixture(scope="module")
def first() -> cml.Model:
    """A model of vectors."""
    return cml.fit(ROWS[:100], LABELS[:100], steps=40, dimension=6, **OPTIONS)


def test_a_start_goes_on_where_the_model_was(first: cml.Model, tmp_path: Path) -> None:
    before = first.embed(ROWS)
    model = cml.fit(
        ROWS[100:] + 1, LABELS[100:], start=first, steps=1, learning_rate=1e-12, out=tmp_path / "run", **OPTIONS
    )
    np.testing.assert_allclose(model.embed(ROWS), before, atol=1e-5)  # with head and standardisation
    assert model.network is not first.network
    trained = cml.fit(ROWS[100:], LABELS[100:], start=first, steps=20, **OPTIONS)
    assert np.abs(trained.embed(ROWS) - before).max() > 1e-3
    np.testing.assert_array_equal(first.embed(ROWS), before)
    np.testing.assert_allclose(cml.load(tmp_path / "run", device="cpu").embed(ROWS), before, atol=1e-5)
    again = cml.load(trained.save(tmp_path / "model"), device="cpu")
    other = cml.fit(ROWS, (LABELS > 3).astype(int), start=again, label_distance="classes", steps=2, **OPTIONS)
    plain = cml.fit(ROWS, LABELS, start=again, loss="log-ratio(normalize=false)", steps=2, **OPTIONS)
    assert other.config.normalize
    assert not plain.config.normalize


def test_a_caller_without_gradients_trains_all_the_same() -> None:
    with torch.no_grad():
        model = cml.fit(ROWS, LABELS, steps=2, **OPTIONS)
        assert not torch.is_grad_enabled()
    np.testing.assert_allclose(model.embed(ROWS), cml.fit(ROWS, LABELS, steps=2, **OPTIONS).embed(ROWS), atol=1e-5)


def test_own_networks_and_frozen_ones_continue() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU())
    first = cml.fit(ROWS, LABELS, backbone=network, dimension=4, steps=2, **OPTIONS)
    model = cml.fit(ROWS, LABELS, start=first, freeze_backbone=True, steps=2, **OPTIONS)
    np.testing.assert_allclose(model.network.extract(ROWS), first.network.extract(ROWS), atol=1e-6)
    assert np.abs(model.embed(ROWS) - first.embed(ROWS)).max() > 0


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (ROWS[:, :5], {}, "The start model takes 8 numbers. Got 5 numbers instead"),
        (ROWS, {"dimension": 7}, "The start model has dimension=6: leave out dimension=7"),
        (ROWS, {"backbone": "mlp"}, "A start model has a backbone already"),
        (ROWS, {"tune": True}, "A start model has a head already: leave out tune=True"),
    ],
)
def test_what_contradicts_a_start_is_named(
    first: cml.Model, inputs: np.ndarray, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(cml.UserError, match=message):
        cml.fit(inputs, LABELS, start=first, steps=2, **options, **OPTIONS)


def test_a_model_is_no_backbone(first: cml.Model) -> None:
    for backbone in (first, first.network):
        with pytest.raises(cml.UserError, match="continue it by start=model"):
            cml.fit(ROWS, LABELS, backbone=backbone, steps=2, **OPTIONS)  # type: ignore[arg-type]


def test_a_run_on_a_dataset_continues_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--steps", "2", "--sampler", "random(batch_size=12)", "--device", "cpu"]
    for name, columns in (("all", "abcd"), ("fewer", "abc")):
        table = pd.DataFrame(ROWS[:80, : len(columns)], columns=list(columns)).assign(y=LABELS[:80])
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        source = ["--source", str(tmp_path / f"{name}.csv"), "--features", *columns, "--label-columns", "y"]
        assert main(["prepare", "table", *source, "--out", str(tmp_path / name)]) == 0
    data = ["--data", str(tmp_path / "all"), *small]
    assert main(["train", "value", *data, "--out", str(tmp_path / "first"), "--dimension", "6"]) == 0
    start = ["--start", str(tmp_path / "first"), "--learning-rate", "1e-12"]
    assert main(["train", "value", *data, "--out", str(tmp_path / "second"), *start]) == 0
    assert "The start model decides dimension=6" in capsys.readouterr().err
    first, second = (cml.load(tmp_path / name, device="cpu") for name in ("first", "second"))
    np.testing.assert_allclose(second.embed(ROWS[:, :4]), first.embed(ROWS[:, :4]), atol=1e-5)
    other = ["--data", str(tmp_path / "fewer"), *small, "--out", str(tmp_path / "third")]
    assert main(["train", "value", *other, "--start", str(tmp_path / "first")]) == 2
    assert "error: The start model takes 4 numbers. Got 3 numbers instead." in capsys.readouterr().err
    assert not (tmp_path / "third").exists()
    assert main(["train", "value", *data, "--out", str(tmp_path / "third"), "--start", str(tmp_path / "none")]) == 2
    assert "none is not a folder; give a run folder" in capsys.readouterr().err
