"""All callbacks of a run, called in order with its state."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from torch import Tensor, nn

from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig


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
