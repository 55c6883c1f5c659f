"""Samplers by name: ``cml.sampling.get("grouped", batch_size=150, groups=24)``."""

from cml.registry import Registry
from cml.sampling.batch import Batch
from cml.sampling.sampler import Sampler

registry: Registry[Sampler] = Registry(
    "sampler",
    {
        "binary": "cml.sampling.binary:BinarySampler",
        "dense": "cml.sampling.dense:DenseSampler",
        "grouped": "cml.sampling.grouped:GroupedSampler",
        "per-class": "cml.sampling.per_class:PerClassSampler",
        "random": "cml.sampling.random:RandomSampler",
    },
    group="cml.samplers",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = ["Batch", "Sampler", "get", "names", "register", "registry"]


def __dir__() -> list[str]:
    return __all__
