"""Optimisers by name, with settings: ``adamw``, ``rmsprop(momentum=0.9)``."""

from cml.registry import Registry
from cml.training.optimizers.optimizer import Optimizer

_HOME = "cml.training.optimizers"
registry: Registry[Optimizer] = Registry(
    "optimizer",
    {
        "adam": f"{_HOME}.adam:Adam",
        "adamw": f"{_HOME}.adamw:AdamW",
        "rmsprop": f"{_HOME}.rmsprop:RMSprop",
        "sgd": f"{_HOME}.sgd:SGD",
    },
)
get = registry.get
