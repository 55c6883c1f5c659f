"""Training only the head of a model: every image is embedded once by the frozen backbone, and its features are kept."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.data.images import Images
from cml.distances.label_distance import Float32
from cml.models.embedding import EmbeddingModel
from cml.models.feature_cache import frozen_features
from cml.processes.ranks import Ranks


class Features:
    """Backbone features in memory, in place of images.

    Args:
        rows: (N, F) float32.
    """

    def __init__(self, rows: Float32) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def subset(self, items: slice) -> "Features":
        """The features of some items."""
        return Features(self.rows[items])

    def load(self) -> None:
        """Do nothing: features are in memory already."""

    def read(self, items: NDArray[np.integer]) -> Float32:
        """The features (B, F) of the items (B,)."""
        rows: Float32 = self.rows[items]
        return rows


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

    def embed(self, features: Features) -> Float32:
        """Embeddings (N, D) of N items, in evaluation mode."""
        return self.model.embed_extracted(features.rows)

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
    model: EmbeddingModel, images: Images | Features, ranks: Ranks, *, bar: str = ""
) -> tuple[FrozenNetwork, Features]:
    """Make the network and the inputs for training a model's head.

    Args:
        model: The model.
        images: N images, or their features where they are known already.
        ranks: The processes that share the work.
        bar: Title of a progress bar; "" for none.

    Returns:
        The network, and the features (N, F); those of image files by published weights are read from the cache.
    """
    network = FrozenNetwork(model)
    if isinstance(images, Features):
        return network, images
    paths = images.paths
    if paths is not None:
        return network, Features(
            ranks.compute_rows(len(images), lambda rows: frozen_features(model, paths[rows], bar=bar))
        )
    return network, Features(ranks.compute_rows(len(images), lambda rows: model.extract(images.subset(rows), bar=bar)))
