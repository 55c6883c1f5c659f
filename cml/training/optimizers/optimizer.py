"""The base of the optimisers that an option names: settings now, an optimiser of torch once the parameters are known.

Not for functions of the user's own that make one, which ``cml.training.optimizer`` takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import torch

Groups = Sequence[Mapping[str, Any]]
"""Parameter groups as ``torch.optim`` takes them."""


class Optimizer(ABC):
    """An optimiser with its settings."""

    state: ClassVar[frozenset[str]]  # what torch keeps of a parameter, of its shape but for the number ``step``

    @abstractmethod
    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Make the optimiser of torch."""
