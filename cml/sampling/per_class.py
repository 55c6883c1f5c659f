"""Batches with several items of each of their classes, as pair losses over classes need them."""

import functools
from dataclasses import dataclass

import numpy as np

from cml.array_types import Float64, Int64
from cml.sampling.draws import batch_generator, epoch_generator, refuse_weights
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, check_setting, drop_repeats
from cml.sampling.training_labels import TrainingLabels


@dataclass(frozen=True)
class PerClassSampler(Sampler):
    """``per_class`` items of each class in the batch; every item is an anchor (A = B).

    An epoch deals each class's items, in random order, into groups of ``per_class``; a last smaller group is filled up
    from its class, where that has so many items. A batch is as many groups as fit, of different classes for as long as
    there are enough of them. So every item comes once or twice an epoch. What is missing to a full batch, after
    classes of few items and in the epoch's last batch, are random items.

    Attributes:
        per_class: Items of a class in the batch, at least 2.
    """

    per_class: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_setting("per_class", self.per_class, self.batch_size, least=2)

    def sampler_state(self, labels: TrainingLabels) -> Int64:  # class numbers (N,)
        """Number the classes of the training labels."""
        return labels.classes()

    def batch(
        self,
        state: Int64,  # class numbers (N,)
        *,
        seed: int,
        step: int,
        weights: Float64 | None = None,  # None: the classes decide how often an item comes
    ) -> Batch:
        """Compose the batch of a step."""
        self.check_state(state, 1)
        refuse_weights(weights, "per-class")
        numbers = np.ascontiguousarray(state, np.int32).tobytes()
        # the number of batches of an epoch depends on the classes' sizes alone
        epoch, index = divmod(step, len(_deal_groups(numbers, self.batch_size, self.per_class, seed, 0)))
        groups = _deal_groups(numbers, self.batch_size, self.per_class, seed, epoch)[index]
        return self.compose(groups, state, batch_generator(seed, epoch, index))


@functools.lru_cache(maxsize=4)
def _deal_groups(numbers: bytes, batch_size: int, per_class: int, seed: int, epoch: int) -> tuple[Int64, ...]:
    """The joined groups of each batch of an epoch; ``numbers`` are the bytes of N int32 class numbers."""
    classes = np.frombuffer(numbers, np.int32)
    rng = epoch_generator(seed, epoch)
    order = rng.permutation(len(classes))
    order = order[np.argsort(classes[order], kind="stable")]  # the classes one after the other, each shuffled
    members = np.split(order, np.flatnonzero(np.diff(classes[order])) + 1)
    groups: list[Int64] = []
    for index in rng.permutation(len(members)):
        items = members[index]
        if len(items) > per_class:
            items = np.concatenate([items, items[: -len(items) % per_class]])
        groups += np.split(items, range(per_class, len(items), per_class))
    at_once = batch_size // per_class
    batches = -(-len(groups) // at_once)
    last = len(groups) - (batches - 1) * at_once  # groups of the last batch
    # a class's groups stand in a row: dealt like cards, one to each batch, they meet again only in the next round
    free = np.tile(np.arange(batches), (at_once, 1))  # (round, batch)
    hands = free[(free < batches - 1) | (np.arange(at_once) < last)[:, None]]
    dealt: list[list[Int64]] = [[] for _ in range(batches)]
    for hand, group in zip(hands.tolist(), groups, strict=True):
        dealt[hand].append(group)
    return tuple(drop_repeats(np.concatenate(dealt[hand])) for hand in rng.permutation(batches))
