"""Training only the head of a model: every item passes the frozen backbone once, and its features are kept."""

from typing import Self

import numpy as np
from torch import Tensor, nn

from cml.array_types import Float32, Int64
from cml.data.images import Images
from cml.data.input_form import InputForm
from cml.data.inputs import Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.feature_store.frozen_features import frozen_features, stored_features
from cml.feature_store.store import FeatureStore
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks


class Features(Vectors):
    """Backbone features of images, in place of the images.

    Args:
        rows: (N, F) float32.
    """

    def __init__(self, rows: Float32) -> None:
        super().__init__(rows)
        self.form = InputForm()  # the model takes images

    def subset(self, items: slice | Int64) -> Self:
        """Take the features of some images.

        Args:
            items: Their positions.

        Returns:
            The features.
        """
        return type(self)(self.rows[items])


class FrozenNetwork(nn.Module):
    """A model whose inputs are features: only its head is trained.

    Args:
        model: The model, whose backbone no longer gets gradients.
    """

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

    def train(self, mode: bool = True) -> Self:
        """Set only the head to training mode, so that the backbone's running statistics stay.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            The network itself.
        """
        super().train(mode)
        self.model.backbone.eval()
        return self


def freeze_backbone(
    model: EmbeddingModel, inputs: Inputs, ranks: Ranks, *, store: str = "", bar: str = ""
) -> tuple[FrozenNetwork, Vectors]:
    """Make the network and the inputs for training a model's head.

    Args:
        model: The model.
        inputs: N inputs, or the features of N images where they are known already.
        ranks: The processes that share the work.
        store: Folder of a feature store that holds the features; "" to compute them.
        bar: Title of a progress bar; "" for none.

    Returns:
        The network, and the features (N, F); those of image files by published weights are read from the cache.

    Raises:
        UserError: Another network made the store, or the inputs are no image files.
        DataError: The store lacks some of the images, or is damaged.
    """
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
