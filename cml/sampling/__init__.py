"""Samplers by name: ``cml.sampling.get("grouped", batch_size=150, groups=24)``."""

from cml.registry import Registry
from cml.sampling.sampler import Batch, Sampler

registry: Registry[Sampler] = Registry(
    "sampler",
    {
        "binary": "cml.sampling.lists:BinaryLists",
        "dense": "cml.sampling.lists:DenseLists",
        "grouped": "cml.sampling.lists:GroupedLists",
        "per-class": "cml.sampling.lists:PerClassBatches",
        "random": "cml.sampling.lists:RandomBatches",
    },
    group="cml.samplers",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["Batch", "Sampler", "get", "names", "register", "registry"]


def __dir__() -> list[str]:
    return __all__
