"""An exponential moving average of a model's weights, which a run with ``ema_decay`` validates, keeps and saves.

The optimiser continues with the weights themselves. Running statistics of batch normalisation are averaged too, since
those of the last steps belong to other weights. A loss's proxies are not averaged. The average is a second copy of the
weights, read and written in each step. Several processes have the same weights after a step, so each computes it for
itself.
"""

import contextlib
from collections.abc import Iterator, Mapping

from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

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
