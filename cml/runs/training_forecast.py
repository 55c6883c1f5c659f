"""How long trainings take: from the time of a few images in a step of each network, without reading them."""

import time
from collections.abc import Mapping

import torch

from cml import sampling
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.config import TrainConfig

CARD = 1000  # images a second of the first training, of the forecast for a graphics card
_HOUR = 3600


def forecast_hours(
    trainings: Mapping[str, TrainConfig], device: str, seeds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Estimate the hours of trainings.

    Args:
        trainings: Name to options.
        device: The device to time a few images on.
        seeds: Runs of each.

    Returns:
        Name to hours on this device, and on a graphics card that trains the first one on 1,000 images a second and the
        others in proportion to their times here.
    """
    seconds = {key: seconds_an_image(config, device) for key, config in _by_network(trainings).items()}
    hours, card_hours = {}, {}
    for name, config in trainings.items():
        images = seeds * config.steps * sampling.registry.make(config.sampler).batch_size * config.views
        rate = seconds[_network(config)]
        hours[name] = round(images * rate / _HOUR, 2)
        card_hours[name] = round(images * rate / next(iter(seconds.values())) / CARD / _HOUR, 2)
    return hours, card_hours


def _network(config: TrainConfig) -> tuple[str, tuple[int, int]]:
    return config.backbone, config.image_size


def _by_network(trainings: Mapping[str, TrainConfig]) -> dict[tuple[str, tuple[int, int]], TrainConfig]:
    """A training of each network and image size, in order."""
    networks: dict[tuple[str, tuple[int, int]], TrainConfig] = {}
    for config in trainings.values():
        networks.setdefault(_network(config), config)
    return networks


def seconds_an_image(config: TrainConfig, device: str) -> float:
    """Time an image in a step of a fresh network.

    Args:
        config: The options, of which backbone and image size count.
        device: The device.

    Returns:
        Seconds.
    """
    model = EmbeddingModel(ModelConfig(config.backbone, "none", config.dimension, False, config.image_size)).to(device)
    images = torch.zeros(4 if device == "cpu" else 64, 3, *config.image_size, dtype=torch.uint8, device=device)
    for _ in range(2):  # the first pass finds its memory
        begun = time.perf_counter()
        model(images).square().sum().backward()
        model.head.weight.sum().item()  # waits for the card
    return (time.perf_counter() - begun) / len(images)
