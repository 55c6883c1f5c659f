"""The base of the optimisers that an option names: settings now, an optimiser of torch once the parameters are known.

Not for functions of the user's own that make one, which ``cml.training.optimizer`` takes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Groups = list[dict[str, Any]]
"""Parameter groups as ``torch.optim`` takes them."""


class Optimizer(ABC):
    """An optimiser with its settings."""

    state: frozenset[str]  # what torch keeps of a parameter, of its shape but for the number ``step``

    @abstractmethod
    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """Make the optimiser of torch."""
