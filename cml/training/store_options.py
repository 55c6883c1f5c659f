"""The options of training that a feature store decides."""

from typing import Any

from cml.errors import UserError
from cml.feature_store.store import FeatureStore


def store_options(folder: str) -> dict[str, Any]:
    """List the options of training that a feature store decides: the network is the one that computed its features.

    Args:
        folder: Folder of the feature store.

    Returns:
        Values of ``TrainConfig`` by their names: a frozen backbone, and backbone, weights and image size of the store.

    Raises:
        DataError: The folder is no finished store.
        UserError: The features are not those of images by a backbone.
    """
    made_by = FeatureStore.open(folder).manifest["made_by"]
    if made_by["kind"] != "images":
        raise UserError(
            f"The feature store {folder} is of {made_by['kind']} by {made_by['backbone']}; 'features' takes those of "
            "images. In Python, cml.fit takes any store as its inputs."
        )
    return {
        "features": folder,
        "freeze_backbone": True,
        "backbone": made_by["backbone"],
        "weights": made_by["weights"],
        "image_size": tuple(made_by["image_size"]),
        "crop": made_by["crop"],
        "flip": "none",
    }
