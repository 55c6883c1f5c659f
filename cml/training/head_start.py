"""The start of a head that is trained alone: random, or at the principal components of its features."""

import numpy as np
import torch

from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.training.config import TrainConfig
from cml.training.tune_heads import fit_rotation

_MOST = 5000  # items that components are fitted to
_WEIGHT = 0.035  # root mean square of a weight: steps of the usual learning rate change it by a few per cent


def check_head_start(config: TrainConfig) -> None:
    """Refuse a start at principal components where the features change in training.

    Args:
        config: The options of the run.

    Raises:
        UserError: A backbone is trained below the head.
    """
    if config.head_start != "random" and not (config.freeze_backbone or config.backbone == "none"):
        raise UserError(
            f"head_start={config.head_start} begins at the principal components of features that stay as they are: add "
            f"freeze_backbone=True (--freeze-backbone). Got the backbone {config.backbone} to train instead."
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
