"""Samplers, by name and by class: ``get("grouped", groups=24)``, ``GroupedSampler(groups=24)``."""

from cml.registry import Registry
from cml.sampling.binary import BinarySampler
from cml.sampling.dense import DenseSampler
from cml.sampling.epoch_batches import Batch, EpochBatches
from cml.sampling.grouped import GroupedSampler
from cml.sampling.linked import LinkedSampler
from cml.sampling.pairs import PairsSampler
from cml.sampling.per_class import PerClassSampler
from cml.sampling.queries import QueriesSampler
from cml.sampling.random import RandomSampler
from cml.sampling.sampler import Sampler
from cml.sampling.triplets import TripletsSampler

registry: Registry[Sampler] = Registry(
    "sampler",
    {
        "binary": "cml.sampling.binary:BinarySampler",
        "dense": "cml.sampling.dense:DenseSampler",
        "grouped": "cml.sampling.grouped:GroupedSampler",
        "linked": "cml.sampling.linked:LinkedSampler",
        "pairs": "cml.sampling.pairs:PairsSampler",
        "per-class": "cml.sampling.per_class:PerClassSampler",
        "queries": "cml.sampling.queries:QueriesSampler",
        "random": "cml.sampling.random:RandomSampler",
        "triplets": "cml.sampling.triplets:TripletsSampler",
    },
    group="cml.samplers",
)
get = registry.get
register = registry.register
names = registry.names

__all__ = [
    "Batch",
    "BinarySampler",
    "DenseSampler",
    "EpochBatches",
    "GroupedSampler",
    "LinkedSampler",
    "PairsSampler",
    "PerClassSampler",
    "QueriesSampler",
    "RandomSampler",
    "Sampler",
    "TripletsSampler",
    "get",
    "names",
    "register",
    "registry",
]


def __dir__() -> list[str]:
    return __all__
