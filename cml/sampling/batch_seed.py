"""The random numbers of a batch: a generator of its own for each purpose, derived from the run's seed and a step.

A batch is a function of (seed, epoch, step in the epoch), so that a run can continue at any step and data workers can
make batches in any order. Streams of different purposes never share a seed.
"""

import numpy as np
from numpy.typing import NDArray

_EPOCH_ORDER = 0  # below 1, where the numbers of an epoch's batches begin
_AUGMENTATION = 7
_OWN_AUGMENTATION = 8


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:  # a new generator, equal for equal arguments
    """Make the generator for the order of an epoch's items."""
    return np.random.default_rng((seed, epoch, _EPOCH_ORDER))


def batch_generator(
    seed: int, epoch: int, index: int
) -> np.random.Generator:  # a new generator, equal for equal arguments
    """Make the generator with which a sampler composes a batch."""
    return np.random.default_rng((seed, epoch, index + 1))


def augmentation_generator(seed: int, step: int) -> np.random.Generator:  # a new generator, equal for equal arguments
    """Make the generator for mirroring and jitter of a batch's images."""
    return np.random.default_rng((seed, step, _AUGMENTATION))


def own_augmentation_words(
    seed: int,
    step: int,
    count: int,  # B, the places in the batch
) -> NDArray[np.unsignedinteger]:  # (B, 4) random numbers; those of a place do not depend on B
    """Draw the seeds of a function of the user's own that augments the items of a batch one by one."""
    words = np.random.SeedSequence((seed, step, _OWN_AUGMENTATION)).generate_state(4 * count)
    return words.reshape(count, 4)
