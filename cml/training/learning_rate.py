"""The learning rate of each step: warm-up, schedule, and the steps in which the backbone waits."""

import math
from typing import Any

import torch

from cml.training.config import TrainConfig
from cml.training.own_functions import MakeSchedule
from cml.training.own_optimizer import make_own_schedule


def learning_rate_factor(config: TrainConfig, step: int) -> float:  # the factor, at least 0
    """Compute the factor of the base learning rates at a step."""
    warmup = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        return warmup * 0.5 * (1 + math.cos(math.pi * step / config.steps))
    if config.schedule == "inverse":
        return warmup / (1 + config.decay * step)
    if config.schedule == "step":
        return warmup * config.decay ** (step // config.decay_every)
    return warmup


class LearningRates:
    """The learning rates of an optimiser's groups in each step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, config: TrainConfig, make_schedule: MakeSchedule | None = None
    ) -> None:
        self._optimizer = optimizer
        self._config = config
        self._scheduler = None if make_schedule is None else make_own_schedule(make_schedule, optimizer)

    def begin(self, step: int) -> None:
        """Set the learning rates of a step."""
        if self._scheduler is not None:
            return
        for group in self._optimizer.param_groups:
            waits = step < group.get("waits", 0)
            group["lr"] = 0.0 if waits else group["base_lr"] * learning_rate_factor(self._config, step)

    def end(self) -> None:
        """Let a scheduler of the user's own take its step, after that of the optimiser."""
        if self._scheduler is not None:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The state of a scheduler of the user's own, for a checkpoint; empty without one."""
        return {} if self._scheduler is None else self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state)
