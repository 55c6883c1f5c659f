"""Losses by name: ``cml.losses.get("log-ratio")``."""

from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.registry import Registry

registry: Registry[LabelDistanceLoss] = Registry(
    "loss",
    {
        "log-ratio": "cml.losses.log_ratio:LogRatioLoss",
        "dense-triplet": "cml.losses.dense_triplet:DenseTripletLoss",
        "binary-triplet": "cml.losses.binary_triplet:BinaryTripletLoss",
    },
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["LabelDistanceLoss", "get", "names", "register", "registry"]
