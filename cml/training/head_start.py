"""The start of a head that is trained alone: random, or at the principal components of its features."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.losses.label_distance_loss import finite_sample
from cml.losses.log_ratio import fit_floor, fit_label_exponent
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.training.config import TrainConfig
from cml.training.run_config import RunConfig
from cml.training.training_targets import TrainingTargets
from cml.training.tune_heads import fit_rotation

Start = Literal["random", "pca", "standardised"]

_MOST = 5000  # items that components are fitted to
_WEIGHT = 0.035  # root mean square of a weight: steps of the usual learning rate change it by a few per cent
_STEEP = 4.0  # exponent of label distances that hardly spread: log-ratio bounds it there
_FLOOR_QUANTILE, _ZERO_FACTOR = 0.02, 0.5  # the defaults of log-ratio


def check_head_start(config: TrainConfig) -> None:
    """Refuse a start at principal components where the features change in training.

    Args:
        config: The options of the run.

    Raises:
        UserError: A backbone is trained below the head.
    """
    if config.head_start in ("pca", "standardised") and not config.has_head_alone:
        raise UserError(
            f"head_start={config.head_start} begins at the principal components of features that stay as they are: add "
            f"freeze_backbone=True (--freeze-backbone). Got the backbone {config.backbone} to train instead."
        )


def keep_head_start(config: TrainConfig, out: Path | None, *, resume: bool) -> TrainConfig:
    """Keep the start that a resumed run of an earlier version began with, where it is left to be chosen today.

    Args:
        config: The options of the run.
        out: Run folder; None for none.
        resume: Whether the run in it is continued.

    Returns:
        The options.
    """
    if not resume or out is None or config.head_start != "auto" or not (out / "config.json").is_file():
        return config
    return replace(config, head_start=RunConfig.load(out).started_with.head_start)


def choose_head_start(config: TrainConfig, loss: Loss, training: TrainingTargets) -> tuple[Start, str]:
    """Choose the start of a head by the label distances of a sample of training pairs.

    Where label distances hardly spread, as those of captions and of many classes, random weights blur the distances of
    the features by more than labels differ, and the head starts from the principal components. The automatic exponent
    of log-ratio is at its bound there. The rule is the same for every loss.

    Args:
        config: The options of the run.
        loss: The loss.
        training: The training labels.

    Returns:
        The start, and what to say of it; "" of random weights.
    """
    if config.head_start != "auto":
        return config.head_start, ""
    if not config.has_head_alone or loss.starts_at_zero:
        return "random", ""
    try:
        sample = finite_sample(torch.from_numpy(training.label_distances()))
        exponent = fit_label_exponent(sample, fit_floor(sample, _FLOOR_QUANTILE), _ZERO_FACTOR)
    except UserError:  # no label distance differs from another one
        return "random", ""
    if exponent < _STEEP:
        return "random", ""
    return "pca", (
        "The head starts from the principal components of its features, for label distances hardly spread "
        "(head_start=auto)."
    )


def start_at_components(model: EmbeddingModel, inputs: Vectors, ranks: Ranks) -> None:
    """Set the head to the first principal components of the features, with their spreads.

    Where there are fewer components than dimensions, the further dimensions stay 0: a linear map has no more.

    Args:
        model: The model, whose head is linear.
        inputs: The training items: features, or vectors, which the model standardises.
        ranks: The processes that train together; the first one computes the components.
    """

    def fit() -> tuple[torch.Tensor, torch.Tensor]:
        rows = np.arange(len(inputs))
        if len(rows) > _MOST:
            rows = np.sort(np.random.default_rng(0).choice(len(rows), _MOST, replace=False))
        some = inputs.subset(rows)
        is_raw = model.config.inputs.kind == "vectors"
        features = model.standardize(some) if is_raw else np.asarray(some.read(np.arange(len(some))), np.float32)
        rotation = fit_rotation(features, standardize=False, components=model.config.dimension)
        weight = rotation.axes.T  # (K, F), orthonormal
        weight = weight * (_WEIGHT / np.sqrt(np.square(weight).mean()))
        return torch.from_numpy(weight).float(), torch.from_numpy(-weight @ rotation.mean).float()

    weight, bias = ranks.broadcast(fit)
    with torch.no_grad():
        for parameter, values in ((model.head.weight, weight), (model.head.bias, bias)):
            parameter.zero_()
            parameter[: len(values)] = values.to(parameter)
