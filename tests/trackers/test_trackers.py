"""Experiment trackers, with their libraries in their offline modes, and callbacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import cml
from cml.cli import main
from cml.errors import UserError
from cml.trackers import TrackedRun
from cml.training.callbacks import State

LEVELS = np.linspace(0, 255, 40).round()
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
TINY: dict[str, Any] = {
    "backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 8, "workers": 0, "quiet": True,
    "sampler": "random(batch_size=16)", "device": "cpu",
}  # fmt: skip


class Kept:
    """A tracker that keeps what it gets."""

    def __init__(self, fails_at: int = 0) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.widths: list[int] = []  # of images
        self._fails_at = fails_at

    def begin(self, run: TrackedRun, /) -> None:
        self.calls.append(("begin", run))

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        if self._fails_at and step >= self._fails_at:
            raise ConnectionError("no\nroute to host")
        self.calls.append(("log", (step, dict(numbers))))

    def log_image(self, name: str, path: Path, /) -> None:
        with Image.open(path) as image:
            self.widths.append(image.width)
        self.calls.append(("log_image", name))

    def end(self) -> None:
        self.calls.append(("end", None))


@pytest.mark.usefixtures("drawn_curves")
def test_a_tracker_gets_the_curves_the_validations_and_the_picture(tmp_path: Path) -> None:
    tracker = Kept()
    out = tmp_path / "run"
    cml.fit(
        IMAGES, LEVELS, steps=25, evaluate_every=20, validation_fraction=0.3, clip_gradient=1.0, out=out,
        tracker=tracker, **TINY,
    )  # fmt: skip
    kinds = [kind for kind, _ in tracker.calls]
    assert kinds == ["begin", "log", "log", "log", "log", "log_image", "end"]
    assert tracker.widths[0] > 500
    run = tracker.calls[0][1]
    assert (run.name, run.config["steps"], run.folder) == ("run", 25, out)
    points = [value for kind, value in tracker.calls if kind == "log"]
    assert [step for step, _ in points] == [10, 20, 20, 25]
    assert set(points[0][1]) == {"loss", "learning_rate", "gradient_norm", "images_per_second"}
    assert set(points[2][1]) == {"validation"}
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    written = {record["step"]: record["loss"] for record in metrics if "loss" in record}
    assert points[0][1]["loss"] == pytest.approx(written[10], rel=1e-6)
    assert points[3][1]["learning_rate"] < points[0][1]["learning_rate"]
    assert points[0][1]["gradient_norm"] > 0


def test_a_tracker_that_fails_is_one_warning_and_training_goes_on() -> None:
    tracker = Kept(fails_at=20)
    with pytest.warns(UserWarning, match="The tracker Kept failed .* ConnectionError: no route to host") as warned:
        model = cml.fit(IMAGES, LEVELS, steps=40, tracker=tracker, **TINY)
    assert len(warned) == 1
    plain = cml.fit(IMAGES, LEVELS, steps=40, **TINY)
    np.testing.assert_array_equal(model.embed(IMAGES), plain.embed(IMAGES))


def test_an_unknown_tracker_is_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Unknown tracker 'tensorbord'\. Did you mean 'tensorboard'"):
        cml.fit(IMAGES, LEVELS, steps=1, out=tmp_path / "run", tracker="tensorbord", **TINY)
    assert not (tmp_path / "run").exists()


def test_callbacks_see_the_run_and_may_end_it(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    states: list[State] = []

    def note(name: str, end_at: int = 0) -> Any:  # noqa: ANN401 - a callback
        def call(state: State) -> bool:
            seen.append((name, state.step))
            states.append(state)
            return state.step == end_at

        return call

    watch = cml.Callback(
        on_step=note("step", 7), on_validate=note("validate"), on_checkpoint=note("checkpoint"), on_end=note("end")
    )
    out = tmp_path / "run"
    cml.fit(
        IMAGES, LEVELS, steps=50, evaluate_every=5, validation_fraction=0.3, checkpoint_every=3, out=out,
        callbacks=[watch], **TINY,
    )  # fmt: skip
    assert [step for name, step in seen if name == "step"] == [1, 2, 3, 4, 5, 6, 7]
    assert [step for name, step in seen if name == "validate"] == [5]
    assert [step for name, step in seen if name == "checkpoint"] == [3, 6, 7]
    assert seen[-1] == ("end", 7)
    assert states[-1].validation is not None
    assert (out / "model.safetensors").exists()
    assert cml.open_run(out).config.train.steps == 50
    with pytest.raises(AttributeError):
        states[0].step = 3  # type: ignore[misc]


def test_callbacks_do_not_change_the_training() -> None:
    plain = cml.fit(IMAGES, LEVELS, steps=12, **TINY)
    norms: list[float] = []
    watch = cml.Callback(on_step=lambda state: norms.append(state.gradient_norm))
    watched = cml.fit(IMAGES, LEVELS, steps=12, callbacks=[watch], **TINY)
    for mine, theirs in zip(plain.network.parameters(), watched.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert len(norms) == 12
    assert min(norms) > 0


# What a tracker's library keeps is read back with the library itself, in other interpreters: libraries leave threads,
# processes and handlers behind, and some write their last lines when they end.
_TRAIN = """
import sys
from cml.cli import main
if __name__ == "__main__":
    run, tracker = sys.argv[1:]
    small = ["--steps", "20", "--dimension", "8", "--sampler", "random(batch_size=16)", "--device", "cpu"]
    assert main(["train", "value", "--data", "data", "--out", run, *small, "--tracker", tracker]) == 0
    assert main(["evaluate", run, "--tracker", tracker]) == 0
"""
_READ = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("run/tensorboard"); events.Reload()
print([point.step for point in events.Scalars("loss")], events.Tags()["images"])
print([point.value for point in events.Scalars("evaluation/label_distance@1")])
""",
    "mlflow": """
from mlflow.tracking import MlflowClient
client = MlflowClient()
(found,) = client.search_runs([client.get_experiment_by_name("poses").experiment_id])
history = client.get_metric_history(found.info.run_id, "loss")
print([point.step for point in history], [one.path for one in client.list_artifacts(found.info.run_id)])
print([found.data.metrics["evaluation/label_distance_at_1"]])
assert found.info.status == "FINISHED" and found.data.params["steps"] == "20"
""",
    "trackio": """
import json, sqlite3
rows = sqlite3.connect("trackio/poses.db").execute("select step, metrics from metrics order by id").fetchall()
rows = [{"step": step, **json.loads(metrics)} for step, metrics in rows]
pictures = [row["loss curve"]["_type"] for row in rows if "loss curve" in row]
print([row["step"] for row in rows if "loss" in row], pictures)
print([row["evaluation/label_distance@1"] for row in rows if "evaluation/label_distance@1" in row])
""",
    "wandb": """
from pathlib import Path
from wandb.proto import wandb_internal_pb2 as proto

def records(path):  # LevelDB's log: blocks of 32 KiB, of pieces with checksum, length and kind
    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole = data[at + 7 : at + 7 + length] if kind in (1, 2) else whole + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield proto.Record.FromString(whole)

rows = []
for path in sorted(Path("run").glob("wandb/offline-run-*/*.wandb")):
    for record in records(path):
        if record.WhichOneof("record_type") == "history":
            rows.append({item.key or item.nested_key[0]: item.value_json for item in record.history.item})
print([int(row["_step"]) for row in rows if "loss" in row], *(row["loss curve"] for row in rows if "loss curve" in row))
print([float(row["evaluation/label_distance@1"]) for row in rows if "evaluation/label_distance@1" in row])
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_READ))
def test_what_a_tracker_keeps_is_read_back(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    rows = np.random.default_rng(0).normal(size=(60, 3))
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "labels.csv").write_text("\n".join(["age", *map(str, rows[:, 0])]))
    cml.prepare(
        "table", tmp_path / "data", source=tmp_path / "labels.csv", vectors=tmp_path / "rows.npy", label_columns=["age"]
    )
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / "read.py").write_text(_READ[name])
    environment = {
        **os.environ, "WANDB_MODE": "offline", "MLFLOW_TRACKING_URI": "file:./mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true", "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    tracker = name if name == "tensorboard" else f"{name}({'experiment' if name == 'mlflow' else 'project'}=poses)"
    for script in ("train.py run " + tracker, "read.py"):
        result = subprocess.run(
            [sys.executable, *script.split()],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert result.returncode == 0, result.stdout + result.stderr
        assert "failed" not in result.stderr
    *_, curve, figure = result.stdout.strip().splitlines()
    evaluation = json.loads((tmp_path / "run/evaluation.json").read_text())
    expected = evaluation["rows"]["embedding"]["label_distance@1"]["mean"]
    assert curve.startswith("[10, 20]"), result.stdout
    assert len(curve.partition("]")[2].strip(" []")) > 0, "the picture of the loss"
    assert json.loads(figure) == pytest.approx([expected], rel=1e-6)


def test_the_command_names_an_unknown_tracker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cml.prepare("people", tmp_path / "people", count=24, size=16)
    arguments = ["train", "pose", "--data", str(tmp_path / "people"), "--out", str(tmp_path / "run"), "--steps", "1"]
    assert main([*arguments, "--tracker", "wanb"]) == 2
    assert "Unknown tracker 'wanb'. Did you mean 'wandb'?" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_event_files_are_not_written_through_a_link_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="tensorboard is a link"):
        cml.trackers.get("tensorboard").begin(TrackedRun.of(tmp_path / "run", {}))
    assert list((tmp_path / "elsewhere").iterdir()) == []
