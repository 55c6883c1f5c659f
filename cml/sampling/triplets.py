"""Lists of judged triplets: the batches for the loss over them."""

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
class TripletsSampler(Sampler):
    """Judged triplets in random order, ``batch_size`` / 3 of them in a batch; every item is an anchor (A = B).

    The loss takes all triplets of the batch's items, also those that were not drawn. An epoch takes every different
    triplet once.

    Attributes:
        batch_size: At most so many items, each triplet having three; fewer where triplets share items. At least 3.
    """

    batch_size: int = 384

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size < 3:
            raise UserError(f"The 'batch_size' of triplets must be at least 3. Got {self.batch_size} instead.")

    def sampler_state(
        self, labels: TrainingLabels
    ) -> NDArray[Any]:  # (T, 3) int64: positions of anchor, nearer and farther item
        """List the triplets."""
        return labels.triplets()[:, :3]

    def steps_per_epoch(
        self,
        items: int,  # T, the number of triplets
    ) -> int:
        """Count the batches in which every triplet comes once."""
        return -(-items // (self.batch_size // 3))

    def check_count(
        self,
        items: int,  # N, the number of training items
    ) -> None:
        """Check that there are enough items for a triplet."""
        if items < 3:
            raise UserError(f"A triplet takes 3 items. Got {items} training items instead.")

    def batch(
        self,
        state: NDArray[Any],
        *,
        seed: int,
        step: int,
        weights: Float64 | None = None,  # None: the triplets decide how often an item comes
    ) -> Batch:
        """List the items of the triplets of a step."""
        refuse_weights(weights, "triplets")
        self.check_state(state, 2, rows_are_items=False)
        epoch, index = divmod(step, self.steps_per_epoch(len(state)))
        count = self.batch_size // 3
        order = _epoch_triplets(len(state), seed, epoch)
        chosen = np.take(order, np.arange(index * count, (index + 1) * count), mode="wrap")
        items: Int64 = drop_repeats(state[chosen].ravel())
        return Batch(items, len(items))


@functools.lru_cache(maxsize=2)
def _epoch_triplets(count: int, seed: int, epoch: int) -> Int64:
    return epoch_generator(seed, epoch).permutation(count)
