"""The features of image files below the head of a model, from a feature store instead of the images."""

from collections.abc import Sequence
from pathlib import Path

from cml.data.vectors import Vectors
from cml.feature_store.networks import BackboneNetwork
from cml.feature_store.store import FeatureStore
from cml.models.embedding import EmbeddingModel


def stored_features(
    store: FeatureStore,
    model: EmbeddingModel,
    paths: Sequence[Path],
    subject: str = "the features of this model's backbone",
) -> Vectors:
    """Select the features of image files, which stay in the files of the store.

    Args:
        store: The store.
        model: The model, whose backbone must have made it.
        paths: N image files.
        subject: What needs the features, for messages.

    Returns:
        The features (N, F).

    Raises:
        UserError: Another network made them.
        DataError: The store lacks some of the images, or is damaged.
    """
    store.check_made_by(BackboneNetwork(model).made_by, subject)
    return store.select(store.find(paths))
