"""An exponential moving average of a model's weights, which a run with ``average`` validates, keeps and saves.

The optimiser continues with the weights themselves. Running statistics of batch normalisation are averaged too, since
those of the last steps belong to other weights. A loss's proxies are not averaged. The average is a second copy of the
weights, read and written in each step (``tests/benchmarks/average.py``). Several processes have the same weights after
a step, so each computes it for itself.
"""

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

_EARLY = 8  # eta in the paper


class Average:
    """The average of a network's weights over steps.

    After step t = 1, 2, .. it is d average + (1 - d) weights with d = min(``decay``, (t - 1) / (t + 8)), so that the
    first steps, whose weights are far from the last, are soon forgotten.

    Args:
        network: The trained network, on its device.
        decay: Share of the average that a step keeps, below 1; 0 for no average.

    Reference: Shamir, Zhang: Stochastic Gradient Descent for Non-smooth Optimization, ICML 2013 (the early steps).
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        held = network.state_dict() if decay else {}  # the network's own tensors, which change in place
        self._live = {name: one for name, one in held.items() if one.is_floating_point()}
        self._average = {name: one.clone() for name, one in self._live.items()}

    def update(self, step: int) -> None:
        """Update the average after ``step`` steps."""
        if self._live:
            decay = min(self._decay, (step - 1) / (step + _EARLY))
            moved = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            moved(list(self._average.values()), list(self._live.values()), step)

    def take(self) -> None:
        """Set the network's weights to the average."""
        for name, one in self._live.items():
            one.copy_(self._average[name])

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Set the network's weights to the average in the block."""
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
        """Restore a ``state_dict``."""
        for name, one in self._average.items():
            one.copy_(state[name])
