"""Beside a training that a door starts: the experiment tracker, and the interrupted run."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cml.doors.model import Model
from cml.errors import UserError
from cml.export.sentence_folder import write_sentence_folder
from cml.retrieval.metric_result import MetricResult
from cml.trackers import GuardedTracker, TrackedRun, Tracker
from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig
from cml.training.learner import Learned, Place, StoppedRun
from cml.training.saved_model import RunConfig

TRACK_EVERY = 10  # steps between two points of a tracker's curves


class Tracking(Callback):
    """Sends a run to an experiment tracker."""

    def __init__(self, tracker: str | Tracker) -> None:
        self._tracker = tracker if isinstance(tracker, GuardedTracker) else GuardedTracker(tracker)

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Open the run."""
        self._tracker.begin(TrackedRun.of(run, asdict(config)))

    def on_step(self, state: State, /) -> None:
        """Send a point of each curve."""
        if state.step % TRACK_EVERY == 0 or state.step == state.steps:
            names = ("loss", "learning_rate", "gradient_norm", "images_per_second")
            self._tracker.log(state.step, {name: getattr(state, name) for name in names})

    def on_validate(self, state: State, /) -> None:
        """Send the score."""
        if state.validation is not None:
            self._tracker.log(state.step, {"validation": state.validation})

    def on_end(self, state: State, /) -> None:
        """Send the loss curve, and close the run."""
        if state.run is not None:
            self._tracker.log_image("loss curve", state.run / "loss.png")
        self._tracker.end()


def with_tracker(
    callbacks: Sequence[Callback],
    tracker: str | Tracker | None,  # the tracker, or its name and settings; None or "" for none
) -> list[Callback]:
    """Add a callback for the tracker, if there is one."""
    return [*callbacks, Tracking(tracker)] if tracker else list(callbacks)


def track_evaluation(
    tracker: str | Tracker,
    run: Path,
    config: TrainConfig,
    row: Mapping[str, MetricResult],  # the metrics by name
) -> None:
    """Send a row of a finished run's evaluation to a tracker, as ``evaluation/NAME``."""
    guarded = tracker if isinstance(tracker, GuardedTracker) else GuardedTracker(tracker)
    guarded.begin(TrackedRun.of(run, asdict(config)))
    guarded.log(config.steps, {f"evaluation/{name}": metric.mean for name, metric in row.items()})
    guarded.end()


_latest: list[Model] = []  # the model of the last run, if that was interrupted


class Interrupted(KeyboardInterrupt):
    """An interrupt of ``cml.fit`` or ``cml.train`` after a step and before the end; it carries the model so far.

    Args:
        text: What was done, and how to go on.
        model: The model so far.

    Attributes:
        model: The model so far: with the best weights if the run was validated, else the last ones.

    Example:
        >>> import numpy as np
        >>> def interrupt(state):
        ...     if state.step == 3:
        ...         raise KeyboardInterrupt
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> watch = cml.Callback(on_step=interrupt)
        >>> try:
        ...     cml.fit(rows, rows[:, 0], sampler="random(batch_size=20)", callbacks=[watch], quiet=True)
        ... except cml.Interrupted as stop:
        ...     print(stop.model, stop.model is cml.last())
        Model(none, 3 numbers -> 128 numbers, L2-normalised) True
    """

    def __init__(self, text: str, model: Model) -> None:
        super().__init__(text)
        self.model = model


def last() -> Model:
    """Give the model so far of the last ``cml.fit`` or ``cml.train`` of this process, if that was interrupted.

    Returns:
        The model; it is kept until another run ends.

    Raises:
        UserError: The last run finished, or there was none that had done a step.

    Example:
        >>> import numpy as np
        >>> def interrupt(state):
        ...     if state.step == 3:
        ...         raise KeyboardInterrupt  # as Ctrl-C, or the stop button of a notebook
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> watch = cml.Callback(on_step=interrupt)
        >>> try:
        ...     cml.fit(rows, rows[:, 0], sampler="random(batch_size=20)", callbacks=[watch], quiet=True)
        ... except KeyboardInterrupt:
        ...     print(cml.last())
        Model(none, 3 numbers -> 128 numbers, L2-normalised)
    """
    if not _latest:
        raise UserError(
            "No interrupted run has left a model: cml.last() is for the model of a cml.fit that was interrupted after "
            "its first step. A finished cml.fit returns its model."
        )
    return _latest[0]


def share_folder(place: Place, learned: Learned) -> None:
    """Let sentence-transformers load the model of a finished run from its folder."""
    if place.folder is not None:
        write_sentence_folder(place.folder, learned.model)


@contextlib.contextmanager
def keep_interrupted(
    make_model: Callable[[Learned, RunConfig], Model],
    *,
    has_folder: bool,
    resumes: bool = True,  # whether runs like this one can be resumed
) -> Iterator[None]:
    """Keep the model so far if training is interrupted in the block."""
    try:
        yield
    except StoppedRun as stop:
        if stop.run is None:
            raise
        model = make_model(stop.learned, stop.run)
        _latest[:] = [model]
        again = (
            " The same call with resume=True continues the run."
            if has_folder
            else " A run with out=... can be resumed."
        )
        text = f"{stop}" or "training was interrupted in a step"
        raise Interrupted(f"{text}. The model so far: cml.last().{again if resumes else ''}", model) from None
    _latest.clear()
