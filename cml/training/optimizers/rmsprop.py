"""RMSprop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cml.settings import check_above_zero, check_number
from cml.training.optimizers.optimizer import Groups, Optimizer

if TYPE_CHECKING:
    import torch


class RMSprop(Optimizer):
    """RMSprop, whose weight decay is part of the gradient.

    A gradient is divided by epsilon plus the root of the moving average of its squares, in which the past weighs
    ``decay``.
    """

    def __init__(self, decay: float = 0.99, momentum: float = 0.0, epsilon: float = 1e-8) -> None:
        self.decay = check_number("decay", decay, least=0, below=1)
        self.momentum = check_number("momentum", momentum, least=0, below=1)
        self.epsilon = check_above_zero("epsilon", epsilon)
        self.state = frozenset({"step", "square_avg"} | ({"momentum_buffer"} if self.momentum else set()))

    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """See ``Optimizer``."""
        import torch

        return torch.optim.RMSprop(groups, learning_rate, self.decay, self.epsilon, weight_decay, self.momentum)
