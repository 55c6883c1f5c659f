"""Batches with several items of each of their classes, as pair losses over classes need them."""

import functools
from dataclasses import dataclass

import numpy as np

from cml.errors import UserError
from cml.sampling.sampler import Batch, Int64, ItemLabels, Sampler, without_repeats


@dataclass(frozen=True)
class PerClassBatches(Sampler):
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
        if not 2 <= self.per_class <= self.batch_size:
            raise UserError(f"'per_class' must be in 2..{self.batch_size}. Got {self.per_class} instead.")

    def given(self, labels: ItemLabels) -> Int64:
        """The class numbers (N,)."""
        return labels.classes()

    def batch(self, given: Int64, *, seed: int, step: int) -> Batch:
        """The batch of global step ``step``; ``given`` are the class numbers (N,).

        Raises:
            UserError: fewer items than the batch.
        """
        self.check_given(given, 1)
        numbers = np.ascontiguousarray(given, np.int32).tobytes()
        # the number of batches of an epoch depends on the classes' sizes alone
        epoch, within = divmod(step, len(_dealt(numbers, self.batch_size, self.per_class, seed, 0)))
        groups = _dealt(numbers, self.batch_size, self.per_class, seed, epoch)[within]
        return self.compose(groups, given, np.random.default_rng((seed, epoch, within + 1)))


@functools.lru_cache(maxsize=4)
def _dealt(numbers: bytes, batch_size: int, per_class: int, seed: int, epoch: int) -> tuple[Int64, ...]:
    """The groups of each batch of an epoch, joined, given the bytes of N int32 class numbers."""
    classes = np.frombuffer(numbers, np.int32)
    rng = np.random.default_rng((seed, epoch, 0))
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
    return tuple(without_repeats(np.concatenate(dealt[hand])) for hand in rng.permutation(batches))
