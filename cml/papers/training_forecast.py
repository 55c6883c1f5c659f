"""How long trainings take: from the time of a few images in a step of each backbone, without reading them."""

import time
from collections.abc import Mapping

import torch

from cml import sampling
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.config import TrainConfig

CARD = 1000  # images a second of the first training, of the forecast for a graphics card
_HOUR = 3600
_PASSES = 3  # the fastest counts: the first one finds its memory, and others may share the machine


def forecast_hours(
    trainings: Mapping[str, TrainConfig], device: str, seeds: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Estimate the hours of trainings.

    Each backbone is timed at the image size of its first training; other sizes take time in proportion to their pixels.
    """
    timed = _first_by_backbone(trainings)
    seconds = {backbone: seconds_an_image(config, device) for backbone, config in timed.items()}
    hours, card_hours = {}, {}
    for name, config in trainings.items():
        images = seeds * config.steps * sampling.registry.make(config.sampler).batch_size * config.views
        # convolutions take time in proportion to the pixels
        rate = seconds[config.backbone] * _pixels(config) / _pixels(timed[config.backbone])
        hours[name] = round(images * rate / _HOUR, 2)
        card_hours[name] = round(images * rate / next(iter(seconds.values())) / CARD / _HOUR, 2)
    return hours, card_hours


def _pixels(config: TrainConfig) -> int:
    height, width = config.image_size
    return height * width


def _first_by_backbone(trainings: Mapping[str, TrainConfig]) -> dict[str, TrainConfig]:
    """The first training of each backbone, in order."""
    first: dict[str, TrainConfig] = {}
    for config in trainings.values():
        first.setdefault(config.backbone, config)
    return first


def seconds_an_image(config: TrainConfig, device: str) -> float:
    """Time an image in a step of a fresh network."""
    model = EmbeddingModel(ModelConfig(config.backbone, "none", config.dimension, False, config.image_size)).to(device)
    images = torch.zeros(2 if device == "cpu" else 64, 3, *config.image_size, dtype=torch.uint8, device=device)
    seconds = []
    for _ in range(_PASSES):
        begun = time.perf_counter()
        model(images).square().sum().backward()
        model.head.weight.sum().item()  # waits for the card
        seconds.append(time.perf_counter() - begun)
    return min(seconds) / len(images)
