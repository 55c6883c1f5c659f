"""Adam, whose weight decay is part of the gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cml.settings import check_above_zero, check_number
from cml.training.optimizers.optimizer import Groups, Optimizer

if TYPE_CHECKING:
    import torch


class Adam(Optimizer):
    """Adam, with the weight decay as a part of the gradient (Kingma, Ba, ICLR 2015)."""

    state = frozenset({"step", "exp_avg", "exp_avg_sq"})

    def __init__(self, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> None:
        self.betas = check_number("beta1", beta1, least=0, below=1), check_number("beta2", beta2, least=0, below=1)
        self.epsilon = check_above_zero("epsilon", epsilon)

    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """See ``Optimizer``."""
        import torch

        return torch.optim.Adam(groups, learning_rate, self.betas, self.epsilon, weight_decay, fused=True)
