"""Who may stop a training run: callbacks, which see its state and are called in order, and signals.

SIGINT (Ctrl-C), SIGTERM and SIGHUP end a run after the current step. A run with a folder writes a checkpoint first. One
without heeds only SIGINT, and only where Python's own handler would raise ``KeyboardInterrupt``. Another signal, more
than a second later, stops at once; a run with a folder then continues from an earlier checkpoint. An ignored SIGHUP, as
under nohup, stays ignored. All processes of a run end if one of them gets a signal. Only the main thread of a process
can handle signals; in other threads nothing changes.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Self

from torch import Tensor, nn

from cml.training.config import TrainConfig


@dataclass(frozen=True)
class State:
    """A run after a step, as callbacks see it."""

    step: int  # steps done
    steps: int  # steps of the whole run
    learning_rate: float  # learning rate of the head in this step
    images_per_second: float  # speed since this process began to train
    validation: float | None  # score of the last validation, lower is better; None before the first
    run: Path | None  # the run folder; None for a run without one
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
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        return float(nn.utils.get_total_norm(gradients))


Watch = Callable[[State], Any]


class Callback:
    """Called during training. Give it functions, or subclass it.

    A function that returns True ends the run as after its last step: the model is kept.

    Args:
        on_step: Called after every step.
        on_validate: Called after every validation.
        on_checkpoint: Called after every checkpoint that is written.
        on_end: Called when the run folder is complete.
        on_interrupt: Called when an interrupt or an error ends the run before that.

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
        self,
        *,
        on_step: Watch | None = None,
        on_validate: Watch | None = None,
        on_checkpoint: Watch | None = None,
        on_end: Watch | None = None,
        on_interrupt: Watch | None = None,
    ) -> None:
        functions = {
            "on_step": on_step,
            "on_validate": on_validate,
            "on_checkpoint": on_checkpoint,
            "on_end": on_end,
            "on_interrupt": on_interrupt,
        }
        for name, function in functions.items():
            if function is not None:
                setattr(self, name, function)

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Called before the first step of a run that begins or continues.

        Args:
            config: The options of the run.
            run: The run folder; None for a run without one.
        """

    def on_step(self, state: State, /) -> Any:  # noqa: ANN401 - True asks to stop
        """Called after every step.

        Args:
            state: The state of the run.

        Returns:
            True ends the run as after its last step.
        """

    def on_validate(self, state: State, /) -> Any:  # noqa: ANN401
        """Called after every validation.

        Args:
            state: The state of the run, with the new score.

        Returns:
            True ends the run as after its last step.
        """

    def on_checkpoint(self, state: State, /) -> Any:  # noqa: ANN401
        """Called after every checkpoint that is written.

        Args:
            state: The state of the run.

        Returns:
            True ends the run as after its last step.
        """

    def on_end(self, state: State, /) -> Any:  # noqa: ANN401
        """Called when the run folder is complete.

        Args:
            state: The state of the run.

        Returns:
            Anything; it is not looked at.
        """

    def on_interrupt(self, state: State, /) -> Any:  # noqa: ANN401
        """Called when an interrupt or an error ends the run after a step and before its end.

        Args:
            state: The state of the run.

        Returns:
            Anything; it is not looked at.
        """


class CallbackList:
    """A run with its callbacks, of which the processes that do not write the run folder have none.

    As a context, it calls ``on_interrupt`` of all callbacks if the block ends in an error or an interrupt.
    """

    def __init__(self, callbacks: Sequence[Callback], config: TrainConfig, run: Path | None, model: nn.Module) -> None:
        self._callbacks = callbacks
        self._config = config
        self._run = run
        self._model = model
        self.stop = False  # True once a callback has asked for an end
        self._state: State | None = None
        self._validation: float | None = None
        self._began = time.perf_counter()
        self._images = 0
        for callback in callbacks:
            callback.on_begin(config, run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.call("on_interrupt")

    def step(self, step: int, learning_rate: float, loss: Tensor, norm: Tensor | None, images: int) -> None:
        """Call ``on_step`` of all callbacks."""
        if not self._callbacks:
            return
        self._images += images
        self._state = State(
            step=step,
            steps=self._config.steps,
            learning_rate=learning_rate,
            images_per_second=self._images / (time.perf_counter() - self._began),
            validation=self._validation,
            run=self._run,
            model=self._model,
            _loss=loss,
            _norm=norm,
        )
        self.call("on_step")

    def validate(self, score: float) -> None:
        """Call ``on_validate`` of all callbacks."""
        self._validation = score
        if self._state is not None:
            self._state = replace(self._state, validation=score)
        self.call("on_validate")

    def call(self, name: str) -> None:
        """Call a method of all callbacks in order, if a step was done."""
        if self._state is None:
            return
        for callback in self._callbacks:
            if getattr(callback, name)(self._state) is True:
                self.stop = True


HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows lacks it
SIGNALS = (signal.SIGINT, signal.SIGTERM, HANG_UP)
ECHO = 1.0  # seconds in which a signal counts as a repetition: a scheduler and torchrun both send it


class StopRequest:
    """Whether a signal has asked the run to stop."""

    def __init__(self, announcement: str) -> None:
        self.is_set = False  # True from the first signal on
        self._announcement = announcement
        self._received = 0.0  # time of the first signal

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.is_set:
            if time.monotonic() - self._received < ECHO:
                return
            raise KeyboardInterrupt
        self.is_set = True
        self._received = time.monotonic()
        with contextlib.suppress(OSError):  # the terminal may be gone; print may be busy
            os.write(2, f"\n{self._announcement}\n".encode())


@contextlib.contextmanager
def catch_signals(with_checkpoint: bool = True) -> Iterator[StopRequest]:
    """Catch signals while the block runs; the former handlers are restored after it."""
    checkpoint = ", with a checkpoint" if with_checkpoint else ""
    request = StopRequest(f"stopping after this step{checkpoint}; once more to stop at once")
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    if with_checkpoint:
        caught = set(SIGNALS) - ({HANG_UP} if signal.getsignal(HANG_UP) is signal.SIG_IGN else set())
    else:
        caught = {signal.SIGINT} if signal.getsignal(signal.SIGINT) is signal.default_int_handler else set()
    before = {number: signal.signal(number, request.handle) for number in caught}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
