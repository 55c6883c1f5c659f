"""What decides draws: the random generators of a batch and an epoch, and the order of items by their weights.

A batch is a function of (seed, epoch, step in the epoch), so that a run can continue at any step and data workers can
make batches in any order. Streams of different purposes never share a seed.

A weight says how often an item is an anchor, not how much its term counts in the loss. So it holds for every loss, also
over classes and of the user's own; closed forms stay as they are, and a step costs the same.

Reference: Madow, On the Theory of Systematic Sampling II, Annals of Mathematical Statistics 20, 1949.
"""

import functools

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import UserError

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


def check_weights(
    weights: Float64,  # (N,) above 0
    steps: int,
    positions: Int64,  # (N,) the numbers of the items in messages
) -> None:
    """Check that no item has to be an anchor more than once in a batch."""
    items = len(weights)
    heaviest = int(np.argmax(weights))
    share = float(weights[heaviest] / weights.sum())
    if share * items > steps:
        raise UserError(
            f"'sample_weight' of item {positions[heaviest]} is {100 * share:.3g} % of all, so a batch would need it "
            f"more than once: a weight can be at most {100 * steps / items:.3g} % of all, with {steps} batches in an "
            f"epoch of {items} anchors. Got {weights[heaviest]:g}; lower it, or make the sampler's batch_size smaller."
        )


def weighted_anchors(
    weights: Float64,  # (N,) above 0
    *,
    seed: int,
    epoch: int,
    index: int,
    steps: int,
) -> Int64:
    """Draw the anchors of a batch: N in an epoch, by systematic sampling, none twice in a batch.

    In an epoch an item comes N w / sum(w) times, rounded down or up at random so that the mean is exact.
    """
    drawn = _draw_epoch(weights.tobytes(), seed, epoch)
    return drawn[index::steps]  # dealt like cards: copies of an item lie side by side, and go to different batches


@functools.lru_cache(maxsize=2)
def _draw_epoch(weights: bytes, seed: int, epoch: int) -> Int64:
    """The N anchors of an epoch, copies of an item side by side."""
    values = np.frombuffer(weights, np.float64)
    rng = epoch_generator(seed, epoch)
    order = rng.permutation(len(values))
    ends = np.cumsum(values[order])
    points = (np.arange(len(values)) + rng.random()) * (ends[-1] / len(values))
    places = np.minimum(np.searchsorted(ends, points, side="right"), len(values) - 1)
    drawn: Int64 = order[places]
    return drawn


def refuse_weights(weights: Float64 | None, sampler: str) -> None:
    """Refuse weights in a sampler whose batches do not begin with items that an epoch counts."""
    if weights is not None:
        raise UserError(f"The sampler {sampler!r} takes no 'sample_weight': use 'random' or 'grouped'.")
