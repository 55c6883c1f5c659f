"""The parts of the loop: what acts in each step of a training beside batch, loss and update.

Only the parts that the options switch on exist. A new one is a class with ``is_on`` and what it does, and a name in
``PARTS``. A stage (``stages.py``) acts once, before the first step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from cml.array_types import Int64
from cml.console.messages import say
from cml.losses.cross_batch_memory import CrossBatchMemory
from cml.training.metrics_log import Progress
from cml.training.optimizer import LearningRates
from cml.training.training import Training
from cml.training.validation import Validation


@dataclass
class Update:
    """A step of a training."""

    done: int  # steps done when it is over
    items: Int64  # (B,) numbers of the items of the batch
    value: Tensor  # the loss, a scalar on the device
    embeddings: Tensor  # (B, D) of the whole batch, without a graph
    rate: float = 0.0  # learning rate of the head
    norm: Tensor | None = None  # L2 norm of the gradient, if it is clipped


class Part:
    """A part of the loop. It exists in the trainings that switch it on, and every method may be left as it is."""

    name: ClassVar[str]  # its name in a checkpoint

    def __init__(self, training: Training) -> None:
        self.training = training  # the training that it is a part of

    @classmethod
    def is_on(cls, training: Training) -> bool:
        """Whether the options of a training switch the part on."""
        return True

    def prepare(self) -> None:
        """Set up before the first step, when the network, the items and the optimiser are final."""

    def before(self, update: Update) -> None:
        """Act when the gradient is known and the weights are as before."""

    def after(self, update: Update) -> None:
        """Act when the weights have changed."""

    def finish(self, done: int) -> None:
        """Act when the training ends after ``done`` steps, also by an interrupt: set the weights that are kept."""

    def state_dict(self) -> Mapping[str, Any]:
        """What the next step depends on, for a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``; a ValueError says what is not of this run."""


def check_like(state: object, tensors: Mapping[str, Tensor], fault: str) -> None:
    """Raise a ValueError unless ``state`` holds tensors of the same names and shapes."""
    names = isinstance(state, dict) and state.keys() == tensors.keys()
    if not names or not all(isinstance(it, Tensor) and it.shape == tensors[name].shape for name, it in state.items()):  # type: ignore[attr-defined]
        raise ValueError(fault)


class Schedule(Part):
    """The learning rates of each step."""

    name = "rates"

    def prepare(self) -> None:
        """Make the schedule of the options, or the user's own scheduler."""
        self._rates = LearningRates(self.training.optimizer, self.training.config, self.training.own.schedule)

    def before(self, update: Update) -> None:
        """Set the rates of the step."""
        self._rates.begin(update.done - 1)
        update.rate = self.training.optimizer.param_groups[0]["lr"]

    def after(self, update: Update) -> None:
        """Let a scheduler of the user's own take its step."""
        self._rates.end()

    def state_dict(self) -> dict[str, Any]:
        """The state of a scheduler of the user's own."""
        return self._rates.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._rates.load_state_dict(state)


class Clipping(Part):
    """``clip_gradient`` and ``clip_gradient_value``: bounds of the gradient."""

    name = "clipping"

    @classmethod
    def is_on(cls, training: Training) -> bool:
        """Whether there is a bound."""
        return training.config.clip_gradient is not None or training.config.clip_gradient_value is not None

    def before(self, update: Update) -> None:
        """Clip every number of the gradient, then its norm."""
        config, network = self.training.config, self.training.network
        if config.clip_gradient_value is not None:
            every_parameter = [*network.parameters(), *self.training.loss.parameters()]
            torch.nn.utils.clip_grad_value_(every_parameter, config.clip_gradient_value)
        if config.clip_gradient is not None:
            update.norm = torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_gradient)


class Memory(Part):
    """``memory``: embeddings of earlier batches, with which anchors are compared too."""

    name = "memory"

    @classmethod
    def is_on(cls, training: Training) -> bool:
        """Whether the memory has a size."""
        return training.config.memory > 0

    def prepare(self) -> None:
        """Let the loss see what is stored."""
        self._memory, criterion = CrossBatchMemory(self.training.config.memory), self.training.criterion
        self.training.criterion = lambda embeddings, target: criterion(self._memory.augment(embeddings), target)

    def after(self, update: Update) -> None:
        """Store the embeddings of the step."""
        self._memory.store(update.embeddings, torch.from_numpy(update.items))

    def state_dict(self) -> dict[str, Any]:
        """The stored embeddings and their items."""
        return self._memory.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them; a ValueError says if they are not of this run."""
        items, embeddings = state["items"], state["embeddings"]
        fits = items.dtype == torch.int64 and items.ndim == 1 and len(items) <= self._memory.size
        fits = fits and embeddings.shape == (len(items), self.training.width)
        if len(items) and not (fits and 0 <= items.min() <= items.max() < len(self.training.items)):
            raise ValueError("the memory is not of these items")
        self._memory.load_state_dict(state)


class Average(Part):
    """``ema_decay``: averaged weights, which are validated and kept."""

    name = "average"

    @classmethod
    def is_on(cls, training: Training) -> bool:
        """Whether weights are averaged."""
        return training.config.ema_decay > 0

    def prepare(self) -> None:
        """Begin with the first weights, and validate by the average."""
        config, model = self.training.config, self.training.model
        self._average = AveragedWeights(model.head if config.freeze_backbone else model, config.ema_decay)
        self.training.swap_in = self._average.swap_in

    def after(self, update: Update) -> None:
        """Average the weights of the step."""
        self._average.update(update.done)

    def finish(self, done: int) -> None:
        """Keep the average."""
        self._average.take()

    def state_dict(self) -> dict[str, Any]:
        """The average by the names of the weights."""
        return self._average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it; a ValueError says if it is of another model."""
        check_like(state, self._average.state_dict(), "the average is of another model")
        self._average.load_state_dict(state)


class Reports(Part):
    """metrics.jsonl, the progress bar, and the callbacks."""

    name = "reports"

    def prepare(self) -> None:
        """Begin with the first step, which a checkpoint decides."""
        self._progress: Progress | None = None

    def _open(self, first: int) -> Progress:
        if self._progress is None:
            training = self.training
            training.open_log(first)
            self._progress = Progress(training.config, first, training.log, shown=training.place.is_shown)
        return self._progress

    def before(self, update: Update) -> None:
        """Open the records at the first step."""
        self._open(update.done - 1)

    def after(self, update: Update) -> None:
        """Record the step, and call back."""
        self._open(update.done).step(update.done, update.value, update.embeddings)
        self.training.callbacks.step(update.done, update.rate, update.value, update.norm, len(update.items))

    def finish(self, done: int) -> None:
        """Close the bar."""
        self._open(done).bar.close()

    def state_dict(self) -> dict[str, Any]:
        """Write what waits, before a checkpoint counts its steps as done."""
        if self._progress is not None:
            self._progress.catch_up()
        return {}


class Validating(Part):
    """``evaluate_every``: scores of held-out items, which choose the weights that are kept and may end the run."""

    name = "validation"

    @classmethod
    def is_on(cls, training: Training) -> bool:
        """Whether the run is validated."""
        return training.config.evaluate_every > 0

    def prepare(self) -> None:
        """Rank the held-out items around each other."""
        training, held_out = self.training, self.training.held_out
        assert held_out is not None  # see hold_items_out
        self._validation = Validation(training.model, training.network, held_out, training.config, training.ranks)

    def after(self, update: Update) -> None:
        """Validate if it is due."""
        if update.done % self.training.config.evaluate_every == 0:
            with self.training.swap_in():
                record = self._validation.record(update.done)
            self.training.log.add([record])
            self.training.callbacks.validate(record["validation"])
            self.training.is_over = self._validation.stopping.is_due

    def finish(self, done: int) -> None:
        """Keep the best weights."""
        kept = self._validation.take_best(done)
        if kept and self.training.place.is_shown and not self.training.is_interrupted:
            say(kept)

    def state_dict(self) -> dict[str, Any]:
        """The course of the scores, and the best weights."""
        return self._validation.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it; a ValueError says if it is of another model."""
        if state["best_weights"] is not None:
            check_like(state["best_weights"], self.training.model.state_dict(), "the best weights are of another model")
        self._validation.load_state_dict(state)
        self.training.is_over = self._validation.stopping.is_due


PARTS: tuple[type[Part], ...] = (Schedule, Clipping, Memory, Average, Reports, Validating)
"""In the order in which they act."""


_EARLY_STEPS = 8  # eta in the paper


class AveragedWeights:
    """The average of a network's weights over steps.

    After step t = 1, 2, ... it is d average + (1 - d) weights with d = min(``decay``, (t - 1) / (t + 8)), so that the
    first steps, whose weights are far from the last, are soon forgotten.

    Reference: Shamir, Zhang: Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013 (the early steps).
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        state = network.state_dict() if decay else {}  # the network's own tensors, which change in place
        self._weights = {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}
        self._average = {name: tensor.clone() for name, tensor in self._weights.items()}

    def update(
        self,
        step: int,  # steps done so far, at least 1
    ) -> None:
        """Update the average with the weights of now."""
        if self._weights:
            decay = min(self._decay, (step - 1) / (step + _EARLY_STEPS))
            update = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            update(list(self._average.values()), list(self._weights.values()), step)

    def take(self) -> None:
        """Set the network's weights to the average."""
        _copy(self._average, self._weights)

    @contextlib.contextmanager
    def swap_in(self) -> Iterator[None]:
        """Set the network's weights to the average in the block."""
        before = {name: tensor.clone() for name, tensor in self._weights.items()}
        self.take()
        try:
            yield
        finally:
            _copy(before, self._weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The average by the names of the weights."""
        return self._average

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a ``state_dict``."""
        _copy(state, self._average)


def _copy(source: Mapping[str, Tensor], target: Mapping[str, Tensor]) -> None:
    for name, tensor in target.items():
        tensor.copy_(source[name])
