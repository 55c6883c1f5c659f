"""Lists of pairs whose label distance is known: the batches for judged pairs and a head."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import UserError
from cml.sampling.draws import epoch_generator, refuse_weights
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, drop_repeats
from cml.sampling.training_labels import TrainingLabels


@dataclass(frozen=True)
class PairsSampler(Sampler):
    """Known pairs in random order, ``batch_size`` / 2 of them in a batch; every item is an anchor (A = B).

    For label distances of which few pairs are known, as judged pairs: every batch is full of them, however few they
    are. Use it with ``pair-log-ratio`` on frozen features or vectors, where items cost nothing; for a network, which
    pays for each item, ``linked`` finds more known pairs among fewer items.

    An epoch takes every pair once. Where pairs have weights, a pair of twice the mean weight comes twice as often: its
    number in an epoch is its share of the weights, rounded up or down at random.

    Attributes:
        batch_size: At most so many items, each pair having two; fewer where pairs share items.
    """

    batch_size: int = 512

    def sampler_state(self, labels: TrainingLabels) -> NDArray[Any]:  # (P, 3) float64: both positions, and the weight
        """List the known pairs."""
        known = labels.known_pairs()
        weights = np.ones(len(known.first)) if known.weights is None else known.weights
        return np.stack([known.first, known.second, weights], axis=1)

    def steps_per_epoch(
        self,
        items: int,  # P, the number of known pairs
    ) -> int:
        """Count the batches in which every pair comes once."""
        return -(-items // (self.batch_size // 2))

    def check_count(
        self,
        items: int,  # N, the number of training items
    ) -> None:
        """Check that there are enough items for a pair."""
        if items < 2:
            raise UserError(f"A pair takes 2 items. Got {items} training items instead.")

    def batch(
        self,
        state: NDArray[Any],
        *,
        seed: int,
        step: int,
        weights: Float64 | None = None,  # None: the weights of pairs decide how often each comes
    ) -> Batch:
        """List the items of the pairs of a step."""
        refuse_weights(weights, "pairs")
        self.check_state(state, 2, rows_are_items=False)
        epoch, index = divmod(step, self.steps_per_epoch(len(state)))
        order = _epoch_pairs(np.ascontiguousarray(state[:, 2]).tobytes(), seed, epoch)
        count = self.batch_size // 2
        chosen = np.take(order, np.arange(index * count, (index + 1) * count), mode="wrap")
        items: Int64 = drop_repeats(state[chosen, :2].astype(np.int64).ravel())
        return Batch(items, len(items))


@functools.lru_cache(maxsize=2)
def _epoch_pairs(weights: bytes, seed: int, epoch: int) -> Int64:
    """The pairs of an epoch in random order; ``weights`` are the bytes of P float64."""
    each = np.frombuffer(weights)
    rng = epoch_generator(seed, epoch)
    shares = each / each.mean()
    times = np.floor(shares + rng.random(len(shares))).astype(np.int64)
    if (times == 0).all():
        times[:] = 1
    return rng.permutation(np.repeat(np.arange(len(shares)), times))
