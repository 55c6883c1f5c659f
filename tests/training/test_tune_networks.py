"""Tuning with a budget: a whole network that is clearly better is the model; what takes too long is left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.array_types import UInt8
from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.saved_model import RunConfig
from cml.tuning import heads, networks
from cml.tuning.tune import Tuning

FROZEN: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "freeze_backbone": True,
    "tune": True,
    "dimension": 8,
    "quiet": True,
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train for few steps."""
    monkeypatch.setattr(heads, "STOPS", (2,))
    monkeypatch.setattr(networks, "STEPS", 60)
    monkeypatch.setattr(networks, "FEWEST_STEPS", 5)


def draw_bars(count: int = 100) -> tuple[UInt8, list[float]]:
    """Images of noise in which one row is a little brighter, and the place of that row."""
    rng = np.random.default_rng(0)
    images = rng.normal(100, 30, (count, 16, 16, 3))
    places = rng.integers(1, 15, count)
    images[np.arange(count), places] += 60
    return np.clip(images, 0, 255).astype(np.uint8), places.astype(float).tolist()


@pytest.mark.slow
def test_network_that_is_clearly_better_is_the_model(tmp_path: Path) -> None:
    images, labels = draw_bars(140)
    run = tmp_path / "run"
    model = cml.fit(images[:100], labels[:100], tune_minutes=60, out=run, **FROZEN)
    tuning = model.tuning
    assert isinstance(tuning, Tuning)
    assert set(tuning.networks) == {"small-cnn from scratch, rate 0.001", "small-cnn from scratch, rate 0.003"}
    assert tuning.chosen[0] in tuning.networks
    assert tuning.gain > 0
    assert any("small-cnn from scratch, rate 0.001" in line for line in tuning.lines())
    score = model.evaluate(images[100:], labels[100:]).rows
    assert score["embedding"]["spearman_rho"].mean > score["random"]["spearman_rho"].mean + 0.2
    loaded = cml.load(run)
    np.testing.assert_allclose(loaded.embed(images), model.embed(images), atol=1e-5)
    config = RunConfig.load(run)
    assert (config.train.tune, config.train.freeze_backbone, config.train.steps) == (True, False, 60)
    assert config.started_with.freeze_backbone
    assert config.started_with.tune_minutes == 60
    assert not (run / "checkpoints" / "tune").exists()
    resumed = cml.fit(images[:100], labels[:100], tune_minutes=60, out=run, resume=True, **FROZEN)
    assert resumed.tuning == tuning
    np.testing.assert_array_equal(resumed.embed(images), loaded.embed(images))
    with pytest.raises(UserError, match="was started with seed=0, now seed=1"):
        cml.fit(images[:100], labels[:100], tune_minutes=60, out=run, resume=True, seed=1, **FROZEN)


@pytest.mark.slow
def test_budget_is_obeyed_and_what_was_left_out_is_said() -> None:
    images, labels = draw_bars(60)
    start = time.monotonic()
    tuning = cml.fit(images, labels, tune_minutes=1e-5, **FROZEN).tuning
    assert time.monotonic() - start < 60
    assert isinstance(tuning, Tuning)
    assert not tuning.networks
    assert len(tuning.left_out) == 2
    assert sum("left out for lack of time" in line for line in tuning.lines()) == 2


@pytest.mark.slow
def test_scores_of_finished_networks_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = draw_bars(60)
    calls: list[float] = []
    fit = networks.fit_network

    def interrupt_sixth(data: Any, config: TrainConfig, **named: Any) -> Any:  # noqa: ANN401 - passed on
        calls.append(config.learning_rate)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return fit(data, config, **named)

    monkeypatch.setattr(networks, "fit_network", interrupt_sixth)
    monkeypatch.setattr(networks, "STEPS", 5)
    with pytest.raises(KeyboardInterrupt):
        cml.fit(images, labels, tune_minutes=60, out=tmp_path / "run", **FROZEN)
    tuning = cml.fit(images, labels, tune_minutes=60, out=tmp_path / "run", resume=True, **FROZEN).tuning
    assert calls == [1e-3] * 4 + [3e-3] * 2 + [3e-3] * 4  # the first network was not trained again
    assert isinstance(tuning, Tuning)
    assert len(tuning.networks) == 2


def test_vectors_have_no_whole_networks() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(UserError, match="'tune_minutes' is for networks of images"):
        cml.fit(rows, rows[:, 0], tune=True, tune_minutes=1, quiet=True)


def test_backbone_itself_is_a_candidate_unless_it_is_the_small_network() -> None:
    config = TrainConfig(freeze_backbone=True, tune=True, tune_minutes=5)
    found = networks.network_candidates(config, 3)
    assert [*found] == [
        "small-cnn from scratch, rate 0.001",
        "small-cnn from scratch, rate 0.003",
        "efficientnet-lite0 as a whole, rate 0.0001",
        "efficientnet-lite0 as a whole, rate 0.001",
    ]
    small, *_, whole = found.values()
    assert (small.image_size, small.weights, small.freeze_backbone, small.tune) == ((64, 64), "none", False, False)
    assert (whole.image_size, whole.weights) == ((224, 224), "imagenet")
