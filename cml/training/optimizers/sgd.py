"""Stochastic gradient descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cml.settings import check_number
from cml.training.optimizers.optimizer import Groups, Optimizer

if TYPE_CHECKING:
    import torch


class SGD(Optimizer):
    """Stochastic gradient descent with momentum; the weight decay is part of the gradient."""

    state = frozenset({"momentum_buffer"})

    def __init__(self, momentum: float = 0.9) -> None:
        self.momentum = check_number("momentum", momentum, least=0, below=1)

    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """See ``Optimizer``."""
        import torch

        return torch.optim.SGD(groups, learning_rate, momentum=self.momentum, weight_decay=weight_decay)
