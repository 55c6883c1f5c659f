"""The options of training that a feature store decides."""

from typing import Any

from cml.feature_store.store import FeatureStore
from cml.training.vector_options import vector_options


def store_options(folder: str) -> dict[str, Any]:
    """List the options of training that a feature store decides.

    Features of images by a backbone are trained on as those of a frozen backbone, so that the model takes images. Other
    features are vectors, which the model takes itself.
    """
    store = FeatureStore.open(folder)
    if not store.is_of_backbone:
        return {"features": folder, "freeze_backbone": False, **vector_options()}
    made_by = store.manifest["made_by"]
    return {
        "features": folder,
        "freeze_backbone": True,
        "backbone": made_by["backbone"],
        "weights": made_by["weights"],
        "image_size": tuple(made_by["image_size"]),
        "crop": made_by["crop"],
        "flip": "none",
    }
