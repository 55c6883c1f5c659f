"""Batches whose items are linked by known label distances: for judged pairs and a network."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.distances.sparse_distances import expand_runs
from cml.errors import UserError
from cml.sampling.draws import batch_generator, refuse_weights
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler
from cml.sampling.training_labels import TrainingLabels

_CHANCE = 0.5  # of a link: items of equally many links are drawn at random


@dataclass(frozen=True)
class LinkedSampler(Sampler):
    """A batch grown from a random item: next comes the item with the most known pairs with those before it (A = B).

    For label distances of which few pairs are known, as judged pairs, where each item costs a pass through a network:
    a random batch of 64 items has hardly any known pair if one in a hundred is known. Where the items at hand have no
    known pair with any other, the next one is random. Items without a known pair are in no batch.

    Attributes:
        batch_size: B, items per batch; all of them where fewer have a known pair.
    """

    batch_size: int = 64

    def sampler_state(self, labels: TrainingLabels) -> NDArray[Any]:  # (2 P, 2) int64: positions, by the first
        """List the known pairs in both directions."""
        known = labels.known_pairs()
        pairs = np.stack([known.first, known.second], axis=1)
        both = np.concatenate([pairs, pairs[:, ::-1]])
        return both[np.lexsort((both[:, 1], both[:, 0]))]

    def check_count(
        self,
        items: int,  # N, the number of training items
    ) -> None:
        """Check that there are enough items for a pair."""
        if items < 2:
            raise UserError(f"A pair takes 2 items. Got {items} training items instead.")

    def steps_per_epoch(self, items: int) -> int:
        """Count the batches in which every pair would come once if each batch were a chain of them."""
        return -(-items // (2 * self.batch_size))

    def batch(
        self,
        state: NDArray[Any],
        *,
        seed: int,
        step: int,
        weights: Float64 | None = None,  # None: the known pairs decide how often an item comes
    ) -> Batch:
        """Grow the batch of a step."""
        refuse_weights(weights, "linked")
        self.check_state(state, 2, rows_are_items=False)
        epoch, index = divmod(step, self.steps_per_epoch(len(state)))
        rng = batch_generator(seed, epoch, index)
        items, starts, counts = np.unique(state[:, 0], return_index=True, return_counts=True)
        partners = np.searchsorted(items, state[:, 1])
        links = _CHANCE * rng.random(len(items))  # known pairs with the items chosen so far
        chosen: list[int] = []
        for _ in range(min(self.batch_size, len(items))):
            item = int(np.argmax(links))
            chosen.append(item)
            _, entries = expand_runs(starts[item : item + 1], counts[item : item + 1])
            links[partners[entries]] += 1
            links[chosen[-1]] = -np.inf
        batch: Int64 = items[chosen]
        return Batch(batch, len(batch))
