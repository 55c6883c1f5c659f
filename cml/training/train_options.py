"""The options of training as keyword arguments, for type checkers and for completion in an interpreter."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any, Literal, TypedDict, TypeVar

from cml.training.config import TrainConfig
from cml.training.own_functions import MakeOptimizer, MakeSchedule

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class FitOptions(TypedDict, total=False):
    """The options of ``TrainConfig`` but for those whose names ``cml.fit`` has itself; all may be left out."""

    sampler: str
    weights: str
    dimension: int
    missing: Literal["refuse", "mean"]
    image_size: tuple[int, int]
    freeze_backbone: bool
    tune: bool
    tune_losses: tuple[str, ...]
    tune_rates: tuple[float, ...]
    tune_minutes: float
    train_only: tuple[str, ...]
    head_start: Literal["auto", "random", "pca", "standardised"]
    lora: int
    crop: float
    scale_jitter: float
    shift_jitter: float
    brightness_jitter: float
    random_crop: Literal["none", "place", "area"]
    flip: Literal["none", "list", "image"]
    views: int
    projector: tuple[int, ...]
    epochs: int
    steps: int
    optimizer: Literal["sgd", "adamw", "custom"] | MakeOptimizer
    learning_rate: float
    backbone_lr_scale: float
    proxy_rate: float
    weight_decay: float
    schedule: Literal["cosine", "inverse", "step", "constant", "custom"] | MakeSchedule
    decay: float
    decay_every: int
    warmup: int
    head_first: int
    clip_gradient: float | None
    clip_gradient_value: float | None
    ema_decay: float
    memory: int
    micro_batch: int | None
    batch_norm: Literal["batch", "fixed"]
    precision: Literal["float32", "bfloat16"]
    evaluate_every: int
    validation_fraction: float
    group_column: str
    patience: int
    checkpoint_every: int
    keep_models: bool
    seed: int
    workers: int
    worker_timeout: float
    cache_bytes: int
    device: str


class TrainOptions(FitOptions, total=False):
    """The options of ``TrainConfig``, with the same names and types; all may be left out."""

    label_distance: str
    loss: str
    backbone: str
    features: str


def list_options(
    function: AnyFunction,  # a function that passes ``**options`` on to ``TrainConfig``
) -> AnyFunction:
    """Decorator that lists the options of training in the signature of a function, in place of its ``**options``.

    Type checkers read the annotation ``Unpack[TrainOptions]``; interpreters and notebooks complete arguments from
    ``inspect.signature``, where ``**options`` alone would show no names.
    """
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for option in fields(TrainConfig)
        if option.name not in signature.parameters
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *options])
    return function
