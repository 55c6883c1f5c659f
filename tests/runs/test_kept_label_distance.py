"""Runs keep the label distance that they began with, and are not compared with runs of another one.

The default list of stop words was ``english`` in earlier versions: their runs are made here by their config.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.registry import Choice
from cml.training.run_config import RunConfig

TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "crop": 1.0,
    "sampler": "random(batch_size=8)",
    "checkpoint_every": 1,
    "workers": 0,
    "device": "cpu",
    "quiet": True,
}
CAPTIONS = [["a dog runs"], ["two dogs sleep"], ["the red bus is full"], ["an empty street"], ["three cats"], ["a man"]]


class Stop(cml.Callback):
    """Ends a run at its first checkpoint."""

    def on_checkpoint(self, *_: object) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    return cml.prepare("scenes", tmp_path_factory.mktemp("scenes") / "set", count=40, size=32)


def made_by_an_earlier_version(run: Path) -> None:
    """Turn the list of a run's label distance into the default of earlier versions."""
    config = json.loads((run / "config.json").read_text("utf-8"))
    choice = Choice.parse(config["label_distance"])
    assert choice.settings["stop_words"] == "function"
    config["label_distance"] = str(Choice(choice.name, {**choice.settings, "stop_words": "english"}))
    (run / "config.json").write_text(json.dumps(config), "utf-8")


def list_of(run: Path) -> object:
    return Choice.parse(RunConfig.load(run).label_distance).settings["stop_words"]


def test_a_resumed_run_keeps_its_list(scenes: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(cml.Interrupted):
        cml.train("caption", scenes, tmp_path / "run", **TINY, steps=4, callbacks=[Stop()])
    made_by_an_earlier_version(tmp_path / "run")
    run = cml.train("caption", scenes, tmp_path / "run", **TINY, steps=4, resume=True)
    assert list_of(tmp_path / "run") == "english"
    assert len(run.model.history) == 4
    assert run.model.label_distance.settings()["stop_words"] == "english"


def test_another_option_is_refused_as_before(scenes: PreparedDataset, tmp_path: Path) -> None:
    with pytest.raises(cml.Interrupted):
        cml.train("caption", scenes, tmp_path / "run", **TINY, steps=4, callbacks=[Stop()])
    other = "captions(stop_words=none)"
    with pytest.raises(
        UserError, match=r"was started with label_distance=captions, now label_distance=captions\(stop_words=none\)"
    ):
        cml.train("caption", scenes, tmp_path / "run", **TINY, steps=4, resume=True, label_distance=other)


def test_a_resumed_fit_keeps_its_list(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    labels = [CAPTIONS[number % 6] for number in range(24)]
    options: dict[str, Any] = {
        "label_distance": "captions(vectors=glove-6b-50d, empty_caption=drop, stop_words=english)",
        "sampler": "random(batch_size=8)",
        "steps": 4,
        "checkpoint_every": 1,
        "quiet": True,
        "out": tmp_path / "run",
    }
    with pytest.raises(cml.Interrupted):
        cml.fit(rows, labels, callbacks=[Stop()], **options)
    config = json.loads((tmp_path / "run" / "config.json").read_text("utf-8"))
    config["train"]["label_distance"] = "captions(vectors=glove-6b-50d, empty_caption=drop)"  # english was the default
    (tmp_path / "run" / "config.json").write_text(json.dumps(config), "utf-8")
    options["label_distance"] = config["train"]["label_distance"]
    model = cml.fit(rows, labels, resume=True, **options)
    assert len(model.history) == 4
    assert model.label_distance.settings()["stop_words"] == "english"


@pytest.mark.slow
def test_runs_with_two_lists_are_not_compared(scenes: PreparedDataset, tmp_path: Path) -> None:
    options = {**TINY, "steps": 1, "seeds": 1}
    options.pop("quiet")
    cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), **options)
    (config,) = (tmp_path / "out").glob("**/config.json")
    made_by_an_earlier_version(config.parent)
    both = {"variants": ("log-ratio", "dense triplet"), **options}
    with pytest.raises(UserError, match=r"stop_words='english'.* new runs get .*stop_words='function'.*Choose another"):
        cml.compare("caption", scenes, tmp_path / "out", **both)
    cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), **options)  # all of them are there


@pytest.mark.slow
def test_trials_with_two_lists_are_not_compared(scenes: PreparedDataset, tmp_path: Path) -> None:
    options = {**TINY, "steps": 2, "seeds": 1}
    options.pop("quiet")
    rates = {"learning_rate": "1e-3,1e-4"}
    cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), search_space=rates, **options)
    folders = {config.parent for config in (tmp_path / "out").glob("**/config.json")}
    assert len(folders) == 2
    for folder in folders:
        made_by_an_earlier_version(folder)
    same = {"search_space": rates, **options}
    cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), **same)  # all trials are there
    more = {"search_space": {"learning_rate": "1e-3,1e-4,1e-5"}, **options}
    with pytest.raises(UserError, match=r"stop_words='english'.* new runs get .*stop_words='function'.*Choose another"):
        cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), **more)
    more["search_space"] = {"learning_rate": "1e-5,1e-4"}  # the new trial is the first
    with pytest.raises(UserError, match="they cannot be compared"):
        cml.compare("caption", scenes, tmp_path / "out", variants=("log-ratio",), **more)


def test_the_published_experiment_states_its_list() -> None:
    from cml.tasks.papers import PAPERS

    experiments = PAPERS["beyond-binary"]
    assert experiments["coco"].config.label_distance == "captions(stop_words=english)"
    assert "captions" not in experiments["mpii"].config.label_distance + experiments["lsun"].config.label_distance
