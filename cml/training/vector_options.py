"""The options of training that vectors, texts and a feature store decide."""

from collections.abc import Mapping
from typing import Any

TEXT_BACKBONE = "sentence-transformers/all-MiniLM-L6-v2"  # which the extra ``sentences`` brings


def vector_options() -> dict[str, Any]:
    """List the options: no backbone, no augmentation and a higher learning rate.

    The rate was chosen on three tables (diabetes, wine, captions).
    """
    return {"backbone": "none", "weights": "none", "learning_rate": 3e-3, **_PLAIN}


_PLAIN: dict[str, Any] = {  # no augmentation of images
    "crop": 1.0,
    "scale_jitter": 0.0,
    "shift_jitter": 0.0,
    "brightness_jitter": 0.0,
    "random_crop": "none",
    "flip": "none",
}


def text_options(
    chosen: Mapping[str, Any],  # the options that the user chose
) -> dict[str, Any]:
    """List the options of texts: a pretrained network, which learns more slowly than the head on it."""
    has_head_alone = chosen.get("freeze_backbone") and not chosen.get("tune")  # which sets the rate itself
    rates = {"learning_rate": 3e-3 if has_head_alone else 1e-3}
    network = {"backbone": TEXT_BACKBONE, "weights": "imagenet"}
    return {**network, "dimension": 384, "backbone_lr_scale": 0.1, "warmup": 10, **rates, **_PLAIN}


def store_options(folder: str) -> dict[str, Any]:
    """List the options of training that a feature store decides.

    Features of images by a backbone are trained on as those of a frozen backbone, so that the model takes images. Other
    features are vectors, which the model takes itself.
    """
    from cml.feature_store.store import FeatureStore  # which imports torch

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
        "decode": made_by.get("decode", "exact"),
        "flip": "none",
    }
