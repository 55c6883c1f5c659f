"""Callbacks during training: the user's own, and experiment trackers. They see the state and may stop the run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from cml.retrieval.results import Metric
from cml.trackers import Guarded, TrackedRun, Tracker
from cml.training.config import TrainConfig

TRACK_EVERY = 10  # steps between two points of a tracker's curves


@dataclass(frozen=True)
class State:
    """A run after a step, as callbacks see it."""

    step: int  # steps done
    steps: int  # of the whole run
    learning_rate: float  # of the head, in this step
    images_per_second: float  # since this process began to train
    validation: float | None  # score of the last validation, lower is better; None before the first
    run: Path | None  # run folder
    model: nn.Module  # the trained network, in training mode
    _loss: Tensor = field(repr=False)
    _norm: Tensor | None = field(repr=False)

    @property
    def loss(self) -> float:
        """The loss of this step; asking waits for the device."""
        return float(self._loss)

    @property
    def gradient_norm(self) -> float:
        """L2 norm of the network's gradient in this step, before it was clipped; asking waits for the device."""
        if self._norm is not None:
            return float(self._norm)
        return float(nn.utils.get_total_norm([one.grad for one in self.model.parameters() if one.grad is not None]))


Watch = Callable[[State], Any] | None


class Callback:
    """Called during training. Give it functions, or subclass it.

    A function that returns True ends the run as after its last step: the model is kept.

    Args:
        on_step: Called after every step.
        on_validate: Called after every validation.
        on_checkpoint: Called after every checkpoint that is written.
        on_end: Called when the run folder is complete.

    Example:
        >>> import numpy as np
        >>> import cml
        >>> losses = []
        >>> watch = cml.Callback(on_step=lambda state: losses.append(state.loss) or state.step == 5)
        >>> hues = np.linspace(0, 255, 40).round()
        >>> images = np.tile(hues[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
        >>> model = cml.fit(images, hues, backbone="small-cnn", weights="none", image_size=(16, 16), steps=50,
        ...                 sampler="random(batch_size=20)", workers=0, quiet=True, callbacks=[watch])
        >>> len(losses)
        5
    """

    def __init__(
        self, *, on_step: Watch = None, on_validate: Watch = None, on_checkpoint: Watch = None, on_end: Watch = None
    ) -> None:
        given = {"on_step": on_step, "on_validate": on_validate, "on_checkpoint": on_checkpoint, "on_end": on_end}
        vars(self).update({name: function for name, function in given.items() if function is not None})

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Training begins or continues, with these options and run folder."""

    def on_step(self, state: State, /) -> Any:  # noqa: ANN401 - True asks to stop
        """A step is done."""

    def on_validate(self, state: State, /) -> Any:  # noqa: ANN401
        """The run was validated."""

    def on_checkpoint(self, state: State, /) -> Any:  # noqa: ANN401
        """A checkpoint was written."""

    def on_end(self, state: State, /) -> Any:  # noqa: ANN401
        """The run folder is complete."""


class Tracking(Callback):
    """Sends a run to an experiment tracker, given as an object or by name and settings."""

    def __init__(self, tracker: str | Tracker) -> None:
        self._tell = Guarded(tracker).tell

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Open the run."""
        self._tell("begin", TrackedRun.of(run, asdict(config)))

    def on_step(self, state: State, /) -> None:
        """Send the curves."""
        if state.step % TRACK_EVERY == 0 or state.step == state.steps:
            names = ("loss", "learning_rate", "gradient_norm", "images_per_second")
            self._tell("log", state.step, {name: getattr(state, name) for name in names})

    def on_validate(self, state: State, /) -> None:
        """Send the score."""
        self._tell("log", state.step, {"validation": state.validation})

    def on_end(self, state: State, /) -> None:
        """Send the loss curve."""
        if state.run is not None:
            self._tell("picture", "loss curve", state.run / "loss.png")
        self._tell("end")


def with_tracker(callbacks: Sequence[Callback], tracker: str | Tracker | None) -> list[Callback]:
    """The callbacks, with one for the tracker if there is one; a UserError if it is unknown or not installed."""
    return [*callbacks, *([Tracking(tracker)] if tracker else [])]


def track_figures(tracker: str | Tracker, run: Path, config: TrainConfig, row: Mapping[str, Metric]) -> None:
    """Send a row of a finished run's evaluation to a tracker, as ``evaluation/NAME``."""
    tell = Guarded(tracker).tell
    tell("begin", TrackedRun.of(run, asdict(config)))
    tell("log", config.steps, {f"evaluation/{name}": metric.mean for name, metric in row.items()})
    tell("end")


class Watched:
    """A run with its callbacks, none in processes that write no run folder; ``stop`` is True once one asks for it."""

    def __init__(self, callbacks: Sequence[Callback], config: TrainConfig, run: Path | None, model: nn.Module) -> None:
        self._callbacks, self._config, self._run, self._model = callbacks, config, run, model
        self.stop = False
        self._state: State | None = None
        self._validation: float | None = None
        self._began, self._seen = time.perf_counter(), 0
        for callback in callbacks:
            callback.on_begin(config, run)

    def step(self, step: int, learning_rate: float, loss: Tensor, norm: Tensor | None, images: int) -> None:
        """A step is done; ``norm`` is the gradient's if it was clipped."""
        if self._callbacks:
            self._seen += images
            rate = self._seen / (time.perf_counter() - self._began)
            self._state = State(
                step, self._config.steps, learning_rate, rate, self._validation, self._run, self._model, loss, norm
            )
            self.call("on_step")

    def validated(self, score: float) -> None:
        """The run was validated."""
        self._validation = score
        if self._state is not None:
            self._state = replace(self._state, validation=score)
        self.call("on_validate")

    def call(self, name: str) -> None:
        """Call the method ``name`` of all callbacks in order, if a step was done."""
        for callback in self._callbacks if self._state is not None else ():
            self.stop |= getattr(callback, name)(self._state) is True
