"""AdamW, whose weight decay is a step of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cml.training.optimizers.adam import Adam
from cml.training.optimizers.optimizer import Groups

if TYPE_CHECKING:
    import torch


class AdamW(Adam):
    """Adam, with the weight decay apart from the gradient (Loshchilov, Hutter, ICLR 2019)."""

    def build(self, groups: Groups, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
        """See ``Optimizer``."""
        import torch

        return torch.optim.AdamW(groups, learning_rate, self.betas, self.epsilon, weight_decay, fused=True)
