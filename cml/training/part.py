"""The contract of a part of the loop, see ``parts.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from cml.array_types import Int64

if TYPE_CHECKING:
    from cml.training.training import Training


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
