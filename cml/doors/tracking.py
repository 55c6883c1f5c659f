"""Experiment trackers as callbacks: the curves of a run during training, and the figures of its evaluation later."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cml.retrieval.metric_result import MetricResult
from cml.trackers import GuardedTracker, TrackedRun, Tracker
from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig

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
