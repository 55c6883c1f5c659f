"""The learning rate of each step: warm-up, schedule, and the steps in which the backbone waits."""

import math

import torch

from cml.training.config import TrainConfig


def learning_rate_factor(config: TrainConfig, step: int) -> float:
    """Compute the factor of the base learning rates at a step.

    Args:
        config: The options of the run.
        step: Number of the step, from 0.

    Returns:
        The factor, at least 0.
    """
    warmup = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        return warmup * 0.5 * (1 + math.cos(math.pi * step / config.steps))
    if config.schedule == "inverse":
        return warmup / (1 + config.decay * step)
    if config.schedule == "step":
        return warmup * config.decay ** (step // config.decay_every)
    return warmup


def set_learning_rates(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int) -> None:
    """Set the learning rates of ``make_optimizer``'s groups for a step.

    Args:
        optimizer: The optimiser.
        config: The options of the run.
        step: Number of the step, from 0.
    """
    for group in optimizer.param_groups:
        waits = step < group.get("waits", 0)
        group["lr"] = 0.0 if waits else group["base_lr"] * learning_rate_factor(config, step)
