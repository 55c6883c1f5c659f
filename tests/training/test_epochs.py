"""The length of a run in epochs: the steps in which every training item is an anchor once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cml
from cml import sampling
from cml.cli import main
from cml.errors import UserError
from cml.training.config import TrainConfig

ROWS = np.random.default_rng(0).normal(size=(50, 4))
SAMPLER = "random(batch_size=20)"


@pytest.mark.parametrize("sampler", [SAMPLER, "grouped(batch_size=20, groups=4)", "dense(batch_size=20)"])
def test_epochs_are_as_many_steps_as_the_sampler_counts(sampler: str) -> None:
    model = cml.fit(ROWS, ROWS[:, 0], epochs=2, sampler=sampler, quiet=True)
    assert model.run_config.train.steps == 2 * sampling.get(sampler).steps_per_epoch(50)
    assert model.run_config.train.epochs == 2


def test_epochs_count_the_items_that_are_not_held_out() -> None:
    model = cml.fit(ROWS, ROWS[:, 0], epochs=3, evaluate_every=1, validation_fraction=0.2, sampler=SAMPLER, quiet=True)
    assert model.run_config.train.steps == 3 * 2  # of 40 items


def test_epochs_and_steps_exclude_each_other() -> None:
    with pytest.raises(UserError, match=r"'steps' and 'epochs' both say how long to train.* Got steps=5 and epochs=2"):
        cml.fit(ROWS, ROWS[:, 0], steps=5, epochs=2, sampler=SAMPLER, quiet=True)
    model = cml.fit(ROWS, ROWS[:, 0], TrainConfig(epochs=2, sampler=SAMPLER), steps=5, quiet=True)
    assert (model.run_config.train.steps, model.run_config.train.epochs) == (5, 0)


def test_a_run_in_epochs_resumes(tmp_path: Path) -> None:
    def fit(out: Path, *, stop: int = 0) -> cml.Model:
        callback = cml.Callback(on_step=lambda state: _interrupt(state.step, stop))
        options = TrainConfig(epochs=4, sampler=SAMPLER, checkpoint_every=1)
        return cml.fit(ROWS, ROWS[:, 0], options, out=out, resume=True, quiet=True, callbacks=[callback])

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", stop=5)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    assert (resumed.embed(ROWS) == whole.embed(ROWS)).all()
    with pytest.raises(UserError, match="was started with epochs=4, now epochs=5"):
        cml.fit(ROWS, ROWS[:, 0], TrainConfig(epochs=5, sampler=SAMPLER), out=tmp_path / "again", resume=True)


def _interrupt(step: int, stop: int) -> None:
    if step == stop:
        raise InterruptedError


def test_the_command_takes_epochs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    assert main(["prepare", "people", "--out", str(data), "--count", "60", "--size", "16"]) == 0
    options = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "16", "16", "--workers", "0"]
    command = ["train", "pose", "--data", str(data), *options, "--sampler", "random(batch_size=10)"]
    assert main([*command, "--out", str(run), "--epochs", "2"]) == 0
    config = json.loads((run / "config.json").read_text())["train"]
    assert (config["epochs"], config["steps"]) == (2, 8)  # 40 items are trained on
    capsys.readouterr()
    assert main([*command, "--out", str(tmp_path / "both"), "--epochs", "2", "--steps", "5"]) == 2
    assert "--steps and --epochs both say how long to train" in capsys.readouterr().err
    file = tmp_path / "epochs.json"
    file.write_text(json.dumps({"epochs": 2}))
    assert main([*command, "--out", str(tmp_path / "steps"), "--config", str(file), "--steps", "3"]) == 0
    config = json.loads((tmp_path / "steps" / "config.json").read_text())["train"]
    assert (config["epochs"], config["steps"]) == (0, 3)
