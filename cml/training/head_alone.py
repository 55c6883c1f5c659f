"""A head that is trained alone: the frozen backbone below it, and its start, random or at principal components."""

from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from cml.array_types import Float32, Int64
from cml.data.images import Images
from cml.data.input_form import InputForm, Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.feature_store.frozen_features import frozen_rows, stored_features
from cml.feature_store.manifest import list_departures
from cml.feature_store.store import FeatureStore
from cml.losses.label_distance_loss import finite_sample
from cml.losses.log_ratio import fit_floor, fit_label_exponent
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.models.forward_pass import ForwardPass
from cml.models.heads import RotatedHead
from cml.processes.ranks import Ranks
from cml.training.config import TrainConfig
from cml.training.linear_map import FITTED, first_weight, fit_rotation
from cml.training.training_targets import TrainingTargets

Start = Literal["random", "pca", "standardised"]

_MOST = 5000  # items that components are fitted to
_WEIGHT = 0.035  # root mean square of a weight: steps of the usual learning rate change it by a few per cent
_STEEP = 4.0  # exponent of label distances that hardly spread: log-ratio bounds it there
_FLOOR_QUANTILE, _ZERO_FACTOR = 0.02, 0.5  # the defaults of log-ratio


def check_head_start(config: TrainConfig) -> None:
    """Refuse a start at principal components where the features change in training."""
    if config.head_start in ("pca", "standardised") and not config.has_head_alone:
        raise UserError(
            f"head_start={config.head_start} begins at the principal components of features that stay as they are: add "
            f"freeze_backbone=True (--freeze-backbone). Got the backbone {config.backbone} to train instead."
        )


def choose_head_start(
    config: TrainConfig, loss: Loss, training: TrainingTargets
) -> tuple[Start, str]:  # the start, and what to say of it; "" of random weights
    """Choose the start of a head by the label distances of a sample of training pairs.

    Where label distances hardly spread, as those of captions and of many classes, random weights blur the distances of
    the features by more than labels differ, and the head starts from the principal components. The automatic exponent
    of log-ratio is at its bound there. The rule is the same for every loss.
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


class StandardisedStart:
    """A random start on standardised features; the head becomes a linear map of the features again at the end."""

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


class Features(Vectors):
    """Backbone features of images, in place of the images."""

    def __init__(self, rows: Float32) -> None:
        super().__init__(rows)
        self.form = InputForm()  # the model takes images

    def subset(
        self,
        items: slice | Int64,  # their positions
    ) -> Self:
        """Take the features of some images."""
        return type(self)(self.rows[items])


class FrozenNetwork(nn.Module):
    """A model whose inputs are features: only its head is trained."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model
        model.backbone.requires_grad_(False).eval()

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of features (B, F)."""
        return self.model.embed_features(features)

    def embed(self, features: Vectors) -> Float32:
        """Embeddings (N, D) of the features (N, F) of N items, in evaluation mode."""
        return self.model.embed_feature_rows(features.read(np.arange(len(features))))

    def train(
        self,
        mode: bool = True,  # True for training, False for evaluation
    ) -> Self:
        """Set only the head to training mode, so that the backbone's running statistics stay."""
        super().train(mode)
        self.model.backbone.eval()
        return self


def freeze_backbone(
    model: EmbeddingModel,
    inputs: Inputs,  # N inputs, or the features of N images where they are known already
    ranks: Ranks,
    *,
    store: str = "",  # folder of a feature store that holds the features; "" to compute them
    bar: str = "",  # title of a progress bar; "" for none
) -> tuple[FrozenNetwork, Vectors]:  # the network, and the features (N, F)
    """Make the network and the inputs for training a model's head."""
    network = FrozenNetwork(model)
    if isinstance(inputs, Features):
        return network, inputs
    if store:
        paths = inputs.paths if isinstance(inputs, Images) else None
        if paths is None:
            raise UserError("'features' are found by the files of images: give the inputs as paths.")
        stored = FeatureStore.open(store)
        how = ForwardPass(**list_departures(stored.manifest["made_by"]))  # any will do to train a head on
        with model.use_forward_pass(how):
            return network, stored_features(stored, model, paths)
    return network, Vectors(
        ranks.compute_rows(len(inputs), lambda rows: frozen_rows(model, inputs.subset(rows), bar=bar))
    )
