"""Training on a frozen backbone: every image goes through it once, and its features replace the images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.data.images import Images
from cml.distances.label_distance import Float32
from cml.models.embedding import EmbeddingModel
from cml.models.frozen import frozen_features
from cml.processes.ranks import Ranks


class Features:
    """Backbone features (N, F) instead of N images."""

    def __init__(self, rows: Float32) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, items: slice) -> Features:
        """A part of them."""
        return Features(self.rows[items])

    def load(self) -> None:
        """Nothing to do: they are in memory."""

    def read(self, items: NDArray[np.integer]) -> Float32:
        """The features (B, F) of ``items`` (B,)."""
        rows: Float32 = self.rows[items]
        return rows


class FrozenNetwork(nn.Module):
    """A model whose inputs are features: only its head is trained."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model
        model.backbone.requires_grad_(False).eval()

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of features (B, F)."""
        return self.model.embed_features(features)

    def embed(self, features: Features) -> Float32:
        """Embeddings (N, D), in evaluation mode."""
        return self.model.embed_extracted(features.rows)

    def train(self, mode: bool = True) -> FrozenNetwork:
        """Set only the head to training mode, so that the backbone's running statistics stay."""
        super().train(mode)
        self.model.backbone.eval()
        return self


def frozen(
    model: EmbeddingModel, images: Images | Features, ranks: Ranks, *, bar: str = ""
) -> tuple[FrozenNetwork, Features]:
    """The network and the inputs for training a model's head.

    ``images`` are N images or their features; features of files with published weights are cached.
    ``bar`` is the title of a progress bar while they are computed; "" for none.
    """
    network = FrozenNetwork(model)
    if isinstance(images, Features):
        return network, images
    paths = images.paths
    if paths is not None:
        return network, Features(ranks.rows(len(images), lambda rows: frozen_features(model, paths[rows], bar=bar)))
    return network, Features(ranks.rows(len(images), lambda rows: model.extract(images.subset(rows), bar=bar)))
