"""A head that starts at random on standardised features, frozen or vectors."""

import numpy as np
import torch

from cml.data.inputs import Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.models.rotated_head import RotatedHead
from cml.training.config import TrainConfig
from cml.training.tune_heads import FITTED, first_weight, fit_rotation


class StandardisedStart:
    """A random start on standardised features; the head becomes a linear map of the features again at the end.

    Args:
        model: The model, on its device.
        features: The training inputs: (N, F) features of a frozen backbone, or vectors.
        loss: The loss.
        config: The options of the run, of which ``head_start`` says whether the head starts so.

    Raises:
        UserError: The loss has a start of its own.
    """

    def __init__(self, model: EmbeddingModel, features: Inputs, loss: Loss, config: TrainConfig) -> None:
        self._model = model
        if config.head_start != "standardised":
            return
        assert isinstance(features, Vectors)  # see check_head_start
        if loss.starts_at_zero:
            raise UserError(f"The loss {config.loss!r} starts at 0: leave out head_start={config.head_start}.")
        generator = np.random.default_rng(config.seed)
        items = np.arange(len(features))
        if len(items) > FITTED:
            items = np.sort(generator.choice(items, FITTED, replace=False))
        some = features.subset(items)
        is_vectors = model.config.inputs.kind == "vectors"
        rows = model.standardize(some) if is_vectors else np.ascontiguousarray(some.read(np.arange(len(items))))
        rotation = fit_rotation(rows, standardize=True)
        weight = first_weight(config.head_start, rotation, config.dimension, len(rotation.spread), generator)
        axes = torch.from_numpy(rotation.axes / rotation.scale[:, None])
        center = torch.from_numpy(rotation.mean)
        model.head = RotatedHead(center.float(), axes.float(), weight.T.contiguous()).to(model.mean.device)

    def merge(self) -> None:
        """Make the head a linear map of the features."""
        if isinstance(self._model.head, RotatedHead):
            self._model.head = self._model.head.compose()
