"""A tracker that fails, exits or hangs at the end costs a warning at most, and never a step."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
import cml.trackers
from cml.trackers import GuardedTracker, TrackedRun, guarded
from cml.training.callbacks import State

LEVELS = np.linspace(0, 255, 40).round()
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
TINY: dict[str, Any] = {
    "backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 8, "workers": 0, "quiet": True,
    "sampler": "random(batch_size=16)", "device": "cpu",
}  # fmt: skip
RUN = TrackedRun("run", "key", None, {})


class Acting:
    """A tracker that notes its calls, and acts before those of one method.

    Args:
        method: The method.
        act: What it does first, given the steps of ``log``.
    """

    def __init__(self, method: str = "", act: Callable[[int], object] = lambda step: None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self._method, self._act = method, act

    def begin(self, run: TrackedRun, /) -> None:
        self._note("begin", run.key)

    def log(self, step: int, numbers: Mapping[str, float], /) -> None:
        self._note("log", step)

    def log_image(self, name: str, path: Path, /) -> None:
        self._note("log_image", path.read_bytes()[:4])

    def end(self) -> None:
        self._note("end", None)

    def steps(self) -> list[int]:
        """The steps that were logged."""
        return [step for name, step in self.calls if name == "log"]

    def _note(self, name: str, value: Any) -> None:  # noqa: ANN401 - what it got
        if name == self._method:
            self._act(value if isinstance(value, int) else 0)
        self.calls.append((name, value))


@pytest.fixture
def forever(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], object]]:
    """Hangs until the test ends, within a limit that a test can wait for."""
    monkeypatch.setattr(guarded, "END_LIMIT", 0.2)
    released = threading.Event()
    yield lambda step: released.wait()
    released.set()


def _train(tracker: Any, steps: int = 40, **options: Any) -> tuple[cml.Model, list[int]]:  # noqa: ANN401
    """The model, and the steps that were made."""
    steps_made: list[int] = []
    watch = cml.Callback(on_step=lambda state: steps_made.append(state.step))
    return cml.fit(IMAGES, LEVELS, steps=steps, tracker=tracker, callbacks=[watch], **options, **TINY), steps_made


def _send(tracker: GuardedTracker, step: int) -> None:
    """A run of one point."""
    tracker.begin(RUN)
    tracker.log(step, {"loss": 1.0})
    tracker.end()


def test_a_tracker_that_hangs_at_the_end_is_one_warning(forever: Callable[[int], object]) -> None:
    tracker = Acting("end", forever)
    warning = (
        "The tracker Acting may lack the end of this run: it was still closing the run 0.2 seconds after the last step."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$") as told:
        model, steps = _train(tracker)
    assert len(told) == 1
    assert steps == [*range(1, 41)]
    assert tracker.steps() == [10, 20, 30, 40]
    np.testing.assert_array_equal(model.embed(IMAGES), cml.fit(IMAGES, LEVELS, steps=40, **TINY).embed(IMAGES))


@pytest.mark.parametrize("method", ["begin", "log", "log_image", "end"])
@pytest.mark.parametrize("error", [SystemExit(3), ConnectionError("no\nroute")], ids=repr)
def test_whatever_a_tracker_raises_is_one_warning(method: str, error: BaseException, tmp_path: Path) -> None:
    def act(step: int) -> None:
        raise error

    deeds = {"begin": "opening the run", "log": "sending metrics", "log_image": "sending an image"}
    failure = f"failed when {deeds.get(method, 'closing the run')} and gets no more of this run: {type(error).__name__}"
    with pytest.warns(UserWarning, match=f"The tracker Acting {failure}") as told:
        _, steps = _train(Acting(method, act), out=tmp_path / "run")
    assert len(told) == 1
    assert steps == [*range(1, 41)]
    assert (tmp_path / "run/model.safetensors").exists()


def test_a_callback_learns_of_an_error_but_not_of_a_normal_end() -> None:
    def fail(state: State) -> None:
        if state.step == 3:
            raise ZeroDivisionError

    states: list[State] = []
    watch = cml.Callback(on_interrupt=states.append)
    cml.fit(IMAGES, LEVELS, steps=2, callbacks=[watch], **TINY)
    assert not states
    with pytest.raises(ZeroDivisionError):
        cml.fit(IMAGES, LEVELS, steps=5, callbacks=[watch, cml.Callback(on_step=fail)], **TINY)
    assert [state.step for state in states] == [3]


def test_the_next_run_tries_a_tracker_again_that_failed() -> None:
    def fail(step: int) -> None:
        if step == 10:
            raise ConnectionError

    tracker = Acting("log", fail)
    shared = GuardedTracker(tracker)
    with pytest.warns(UserWarning, match="ConnectionError"):
        _send(shared, 10)
    _send(shared, 20)
    assert tracker.steps() == [20]


def test_an_interrupt_in_a_tracker_is_the_users() -> None:
    def act(step: int) -> None:
        raise KeyboardInterrupt

    shared = GuardedTracker(Acting("log", act))
    shared.begin(RUN)
    with pytest.raises(KeyboardInterrupt):
        shared.log(10, {})


@pytest.mark.parametrize("act", [sys.exit, lambda zero: 1 // zero], ids=["exits", "fails"])
def test_a_tracker_that_cannot_be_made_is_one_warning(
    act: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Making(Acting):
        def __init__(self) -> None:
            act(0)
            super().__init__()

    monkeypatch.setitem(cml.trackers.registry._entries, "making", Making)
    with pytest.warns(UserWarning, match="The tracker making failed when starting it") as told:
        _, steps = _train("making")
    assert len(told) == 1
    assert steps[-1] == 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cml.Run:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("tracked")
    cml.prepare("people", folder / "people", count=40, size=16)
    options = {name: value for name, value in TINY.items() if name != "quiet"}
    cml.train("pose", folder / "people", folder / "run", steps=2, **options)
    return cml.open_run(folder / "run")


@pytest.mark.parametrize("method", ["begin", "log", "end"])
def test_an_evaluation_ends_beside_a_tracker_that_exits(method: str, run: cml.Run) -> None:
    (run.folder / "evaluation.json").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match="failed when .* gets no more of this run: SystemExit: 3") as told:
        evaluation = run.evaluate(tracker=Acting(method, lambda step: sys.exit(3)))
    assert len(told) == 1
    written = json.loads((run.folder / "evaluation.json").read_text())
    assert (
        written["rows"]["embedding"]["label_distance@1"]["mean"]
        == evaluation.rows["embedding"]["label_distance@1"].mean
    )


# A tracker that never comes back from its end, in a process of its own.
_HANGING = """
import threading
import numpy as np
import cml
from cml.trackers import guarded

guarded.END_LIMIT = 0.5


class Hanging:
    def begin(self, run):
        pass

    def log(self, step, numbers):
        pass

    def end(self):
        threading.Event().wait()


levels = np.linspace(0, 255, 40).round()
images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
cml.fit(images, levels, steps=4, backbone="small-cnn", weights="none", image_size=(16, 16), dimension=8, workers=0,
        quiet=True, sampler="random(batch_size=16)", device="cpu", tracker=Hanging())
print("trained")
"""


def test_a_process_ends_beside_a_tracker_that_hangs() -> None:
    result = subprocess.run([sys.executable, "-c", _HANGING], capture_output=True, text=True, timeout=240, check=False)
    assert (result.returncode, result.stdout) == (0, "trained\n"), result.stderr
    assert result.stderr.count("The tracker Hanging may lack the end of this run") == 1
