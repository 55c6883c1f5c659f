"""Training only the head of a model: every item passes the frozen backbone once, and its features are kept."""

from typing import Self

import numpy as np
from torch import Tensor, nn

from cml.array_types import Float32, Int64
from cml.data.images import Images
from cml.data.input_form import InputForm, Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.feature_store.frozen_features import frozen_features, stored_features
from cml.feature_store.store import FeatureStore
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks


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
        return self.model.embed_extracted(features.read(np.arange(len(features))))

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
    paths = inputs.paths if isinstance(inputs, Images) else None
    if store:
        if paths is None:
            raise UserError("'features' are found by the files of images: give the inputs as paths.")
        return network, stored_features(FeatureStore.open(store), model, paths)
    if paths is not None:
        return network, Vectors(
            ranks.compute_rows(len(inputs), lambda rows: frozen_features(model, paths[rows], bar=bar))
        )
    return network, Vectors(ranks.compute_rows(len(inputs), lambda rows: model.extract(inputs.subset(rows), bar=bar)))
