"""The steps of a run whose length is given in epochs."""

from dataclasses import replace

from cml import sampling
from cml.training.config import TrainConfig


def count_steps(config: TrainConfig, items: int) -> TrainConfig:
    """Set ``steps`` to those of ``epochs``; without epochs, the options stay as they are.

    Args:
        config: The options of the run.
        items: N, the number of items that are trained on.

    Returns:
        The options.
    """
    if not config.epochs:
        return config
    sampler = sampling.registry.make(config.sampler)
    return replace(config, steps=config.epochs * sampler.steps_per_epoch(items))
