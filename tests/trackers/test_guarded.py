"""A tracker runs beside training: one that hangs, fails, exits or is slow costs a warning at most, and never a step."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
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
        self.threads: set[threading.Thread] = set()
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
        self.threads.add(threading.current_thread())
        if name == self._method:
            self._act(value if isinstance(value, int) else 0)
        self.calls.append((name, value))


@pytest.fixture
def forever() -> Iterator[Callable[[int], object]]:
    """Hangs from step 20 on, or where there is no step, until the test ends."""
    released = threading.Event()
    yield lambda step: None if 0 < step < 20 else released.wait()
    released.set()


@pytest.fixture
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    monkeypatch.setattr(guarded, "START_WAIT", 0.05)
    monkeypatch.setattr(guarded, "CALL_LIMIT", 1.0)
    monkeypatch.setattr(guarded, "INTERRUPT_LIMIT", 0.5)


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


@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize(
    ("method", "deed", "arrived"),
    [("begin", "opening the run", []), ("log", "sending metrics", [10]), ("end", "closing the run", [10, 20, 30, 40])],
)
def test_a_tracker_that_hangs_is_one_warning_and_no_step(
    method: str, deed: str, arrived: list[int], forever: Callable[[int], object]
) -> None:
    tracker = Acting(method, forever)
    warning = (
        f"The tracker Acting gets no more of this run: {deed} has taken more than 1 seconds. Check that its server "
        "answers."
    )
    with pytest.warns(UserWarning, match=f"^{re.escape(warning)}$") as told:
        model, steps = _train(tracker)
    assert len(told) == 1
    assert steps == [*range(1, 41)]
    assert tracker.steps() == arrived
    np.testing.assert_array_equal(model.embed(IMAGES), cml.fit(IMAGES, LEVELS, steps=40, **TINY).embed(IMAGES))


def test_training_ends_while_the_first_call_still_hangs(
    monkeypatch: pytest.MonkeyPatch, forever: Callable[[int], object]
) -> None:
    monkeypatch.setattr(guarded, "START_WAIT", 0.05)
    monkeypatch.setattr(guarded, "END_LIMIT", 0.1)  # that of a call stays a minute
    with pytest.warns(UserWarning, match=r"0\.1 seconds after the last step it was still opening the run, with 6 c"):
        _, steps = _train(Acting("begin", forever))
    assert steps[-1] == 40


@pytest.mark.parametrize("method", ["begin", "log", "log_image", "end"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), ConnectionError("no\nroute")], ids=repr)
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


def test_everything_reaches_a_slow_tracker_in_order_and_in_one_thread(tmp_path: Path) -> None:
    tracker = Acting("log", lambda step: time.sleep(0.05))
    _train(tracker, 200, evaluate_every=50, validation_fraction=0.3, out=tmp_path / "run")
    assert tracker.steps() == sorted([*range(10, 201, 10), 50, 100, 150, 200])
    assert [name for name, _ in tracker.calls if name != "log"] == ["begin", "log_image", "end"]
    assert tracker.calls[-1] == ("end", None)
    assert len(tracker.threads) == 1
    assert threading.current_thread() not in tracker.threads


def test_a_slow_tracker_has_a_limit_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "END_LIMIT", 0.2)
    tracker = Acting("log", lambda step: time.sleep(0.5))
    with pytest.warns(UserWarning, match=r"0\.2 seconds after the last step it was still sending metrics, w") as told:
        _train(tracker, 100)
    assert len(told) == 1
    assert tracker.steps() == [10 * count for count in range(1, len(tracker.steps()) + 1)]
    assert len(tracker.steps()) < 10


@pytest.mark.usefixtures("_brief")
def test_a_tracker_that_falls_too_far_behind_is_given_up(
    monkeypatch: pytest.MonkeyPatch, forever: Callable[[int], object]
) -> None:
    monkeypatch.setattr(guarded, "CALL_LIMIT", 60.0)
    monkeypatch.setattr(guarded, "QUEUE_LIMIT", 5)
    with pytest.warns(UserWarning, match="more than 5 calls wait until opening the run is done") as told:
        _, steps = _train(Acting("begin", forever), 100)
    assert len(told) == 1
    assert steps[-1] == 100


@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize("out", [False, True])
def test_an_interrupt_ends_training_beside_a_tracker_that_hangs(
    out: bool, tmp_path: Path, forever: Callable[[int], object]
) -> None:
    def interrupt(state: State) -> None:
        if state.step == 25:
            signal.raise_signal(signal.SIGINT)

    with (
        pytest.raises(KeyboardInterrupt),
        pytest.warns(UserWarning, match=r"Acting may lack the end of this run: \d calls? w"),
    ):
        cml.fit(
            IMAGES, LEVELS, steps=1000, tracker=Acting("log", forever), callbacks=[cml.Callback(on_step=interrupt)],
            out=tmp_path / "run" if out else None, **TINY,
        )  # fmt: skip


def test_a_resumed_run_sends_what_an_interrupted_one_did_not(tmp_path: Path) -> None:
    def interrupt(state: State) -> None:
        if state.step == 25:
            signal.raise_signal(signal.SIGINT)

    tracker = Acting("log", lambda step: time.sleep(0.1))
    ends: list[int] = []
    options = {"steps": 40, "tracker": tracker, "out": tmp_path / "run", **TINY}
    watch = cml.Callback(on_step=interrupt, on_interrupt=lambda state: ends.append(state.step))
    with pytest.raises(KeyboardInterrupt):
        cml.fit(IMAGES, LEVELS, callbacks=[watch], **options)
    assert [name for name, _ in tracker.calls] == ["begin", "log", "log"]
    assert ends == [26]  # a signal ends a run after the current step
    cml.fit(IMAGES, LEVELS, resume=True, **options)
    assert tracker.steps() == [10, 20, 30, 40]
    keys = [key for name, key in tracker.calls if name == "begin"]
    assert keys[0] == keys[1]


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


@pytest.mark.usefixtures("_brief")
def test_a_tracker_that_hangs_is_waited_for_once_in_several_runs() -> None:
    released = threading.Event()
    tracker = Acting("begin", lambda step: released.wait())
    shared = GuardedTracker(tracker)
    with pytest.warns(UserWarning, match="opening the run has taken"):
        _send(shared, 10)
    for _ in range(3):
        _send(shared, 10)  # a warning would be an error
    released.set()  # the server is back
    while not tracker.calls:
        time.sleep(0.01)
    _send(shared, 20)
    assert tracker.calls == [("begin", "key"), ("begin", "key"), ("log", 20), ("end", None)]


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


@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize("way", ["exits", "hangs", "fails"])
def test_a_tracker_that_cannot_be_made_is_one_warning(
    way: str, monkeypatch: pytest.MonkeyPatch, forever: Callable[[int], object]
) -> None:
    acts = {"exits": sys.exit, "hangs": forever, "fails": lambda zero: 1 // zero}

    class Making(Acting):
        def __init__(self) -> None:
            acts[way](0)
            super().__init__()

    monkeypatch.setitem(cml.trackers.registry._entries, "making", Making)
    with pytest.warns(UserWarning, match="The tracker making (failed when|gets no more .*) starting it") as told:
        _, steps = _train("making")
    assert len(told) == 1
    assert steps[-1] == 40


def test_the_thread_of_a_tracker_ends_with_it() -> None:
    tracker = Acting()
    shared = GuardedTracker(tracker)
    shared.begin(RUN)
    shared.end()
    (thread,) = tracker.threads
    assert thread.is_alive()
    del shared
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_a_tracker_gets_the_values_of_the_call() -> None:
    released = threading.Event()
    tracker = Acting("begin", lambda step: released.wait())
    sent: list[dict[str, float]] = []
    tracker.log = lambda step, numbers: sent.append(dict(numbers))  # type: ignore[method-assign]
    shared = GuardedTracker(tracker)
    threading.Timer(0.2, released.set).start()
    shared.begin(RUN)
    numbers = {"loss": 1.0}
    shared.log(10, numbers)
    numbers["loss"] = 2.0
    shared.log(20, numbers)
    shared.end()
    assert sent == [{"loss": 1.0}, {"loss": 2.0}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cml.Run:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("tracked")
    cml.prepare("people", folder / "people", count=40, size=16)
    options = {name: value for name, value in TINY.items() if name != "quiet"}
    cml.train("pose", folder / "people", folder / "run", steps=2, **options)
    return cml.open_run(folder / "run")


@pytest.mark.usefixtures("_brief")
@pytest.mark.parametrize(
    ("method", "hangs", "warning"),
    [
        ("begin", True, "opening the run has taken more than 1 seconds"),
        ("log", True, "sending metrics has taken more than 1 seconds"),
        ("end", True, "closing the run has taken more than 1 seconds"),
        ("begin", False, "failed when opening the run and gets no more of this run: SystemExit: 3"),
        ("log", False, "failed when sending metrics and gets no more of this run: SystemExit: 3"),
        ("end", False, "failed when closing the run and gets no more of this run: SystemExit: 3"),
    ],
)
def test_an_evaluation_ends_beside_a_tracker_that_hangs_or_exits(
    method: str, hangs: bool, warning: str, run: cml.Run, forever: Callable[[int], object]
) -> None:
    released = threading.Event()
    act = (lambda step: released.wait()) if hangs else (lambda step: sys.exit(3))
    (run.folder / "evaluation.json").unlink(missing_ok=True)
    with pytest.warns(UserWarning, match=warning) as told:
        evaluation = run.evaluate(tracker=Acting(method, act))
    released.set()
    assert len(told) == 1
    written = json.loads((run.folder / "evaluation.json").read_text())
    assert (
        written["rows"]["embedding"]["label_distance@1"]["mean"]
        == evaluation.rows["embedding"]["label_distance@1"].mean
    )


# A tracker whose thread never comes back, in a process of its own.
_HANGING = """
import threading
import numpy as np
import cml
from cml.trackers import guarded

guarded.START_WAIT, guarded.CALL_LIMIT = 0.1, 0.5


class Hanging:
    def begin(self, run):
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
    assert result.stderr.count("The tracker Hanging gets no more of this run: opening the run has") == 1


# A server that accepts connections and never answers; the process of the tracker is killed once the model is there,
# because the libraries try on for a minute when Python ends.
_SILENT = """
import sys
import numpy as np
import cml
from cml.trackers import guarded
guarded.CALL_LIMIT = 3.0
levels = np.linspace(0, 255, 40).round()
images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
model = cml.fit(images, levels, steps=40, backbone="small-cnn", weights="none", image_size=(16, 16), dimension=8,
                workers=2, quiet=True, sampler="random(batch_size=16)", device="cpu", out="run", tracker=sys.argv[1])
print("trained", model.embed(images).shape, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="ends the processes that the library starts")
@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_server_that_never_answers_costs_one_warning(name: str, tmp_path: Path) -> None:
    pytest.importorskip(name)
    (tmp_path / "train.py").write_text(_SILENT)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment = {
            **os.environ, "MLFLOW_TRACKING_URI": address, "WANDB_BASE_URL": address, "WANDB_API_KEY": "0" * 40,
            "WANDB_MODE": "online",
        }  # fmt: skip
        with (
            open(tmp_path / "stderr", "wb") as stderr,
            subprocess.Popen(
                [sys.executable, "train.py", name],
                cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            watch = threading.Timer(200, os.killpg, (process.pid, signal.SIGKILL))
            watch.start()
            assert process.stdout is not None
            lines = [line for line in iter(process.stdout.readline, "") if line.startswith("trained")][:1]
            watch.cancel()
            os.killpg(process.pid, signal.SIGKILL)
    told = (tmp_path / "stderr").read_text()
    assert lines == ["trained (40, 8)\n"], told
    assert told.count(f"The tracker {name} gets no more of this run: opening the run has taken more than 3 sec") == 1
    assert told.count({"mlflow": "MLFLOW_TRACKING_URI names", "wandb": "WANDB_MODE=offline keeps"}[name]) == 1
