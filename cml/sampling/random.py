"""Batches of random items, every one of them an anchor."""

from dataclasses import dataclass

from cml.sampling.sampler import Sampler


@dataclass(frozen=True)
class RandomSampler(Sampler):
    """Random items, every one an anchor (A = B). An epoch is N / B steps; its last batch is filled up with others."""
