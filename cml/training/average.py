"""An exponential moving average of a model's weights, which is what a run with ``average`` validates, keeps and saves.

The optimiser goes on with the weights as they are. Running statistics of batch normalisation are averaged like weights:
those of the last steps belong to other weights. A loss's proxies are not averaged. It costs a second copy of the
weights, and a read and a write of it a step (``tests/benchmarks/average.py``). Several processes have the same weights
after a step, so that each averages for itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

_EARLY = 8  # eta in the paper


class Average:
    """The average of a network's weights over steps.

    After step t = 1, 2, .. it is d average + (1 - d) weights, where d is the least of ``decay`` and (t - 1) / (t + 8),
    so that the first steps, whose weights are far from the last, are soon forgotten.

    Args:
        network: What is trained, on its device.
        decay: Share of the average that a step keeps, below 1; 0 averages nothing.

    Reference: Shamir, Zhang: Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013 (the early steps).
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        held = network.state_dict() if decay else {}  # the network's own tensors, which change in place
        self._live = {name: one for name, one in held.items() if one.is_floating_point()}
        self._average = {name: one.clone() for name, one in self._live.items()}

    def update(self, step: int) -> None:
        """Take in the weights after so many steps."""
        if self._live:
            decay = min(self._decay, (step - 1) / (step + _EARLY))
            moved = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            moved(list(self._average.values()), list(self._live.values()), step)

    def take(self) -> None:
        """Give the network the average for good."""
        for name, one in self._live.items():
            one.copy_(self._average[name])

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Give the network the average while the block runs."""
        before = {name: one.clone() for name, one in self._live.items()}
        self.take()
        try:
            yield
        finally:
            for name, one in self._live.items():
                one.copy_(before[name])

    def state_dict(self) -> dict[str, Tensor]:
        """The average by the names of the weights."""
        return self._average

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take back what ``state_dict`` gave."""
        for name, one in self._average.items():
            one.copy_(state[name])
