"""The ways to compose a batch: dense and grouped lists, random items, the binary baseline's lists, and per class."""

import functools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.distances.label_distance import Int32
from cml.errors import UserError
from cml.sampling.sampler import Batch, Int64, LabelsOf, Sampler, others


@dataclass(frozen=True)
class DenseLists(Sampler):
    """One anchor, its nearest neighbours, and random others ("Deep Metric Learning Beyond Binary Supervision").

    The paper's lists: 150 items with 5 nearest neighbours, one anchor, as many steps an epoch as there are items.

    Attributes:
        nearest: Nearest neighbours of the anchor in the batch.
    """

    nearest: int = 5
    counted_anchors: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("nearest", self.nearest, self.batch_size - 1)

    @property
    def neighbors(self) -> int:
        """The anchor's nearest neighbours."""
        return self.nearest

    def compose(self, anchors: Int64, given: Int32, rng: np.random.Generator) -> Batch:
        """Anchor, nearest neighbours, others; A = 1."""
        near = given[anchors[0], : self.nearest].astype(np.int64)
        return Batch(self.filled(np.concatenate([anchors, near[near >= 0]]), len(given), rng), 1)


@dataclass(frozen=True)
class GroupedLists(Sampler):
    """Several anchors, some of the nearest neighbours of each, and random others; every item is an anchor (A = B).

    The closed form of the log-ratio loss makes all B anchors as cheap as one, and close pairs are what retrieval is
    judged by: hence several groups in a batch. An epoch counts the groups' anchors.

    Attributes:
        groups: Anchors that bring neighbours along.
        drawn: Neighbours drawn for each of them ...
        pool: ... from so many nearest.
    """

    groups: int = 24
    drawn: int = 3
    pool: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.drawn <= self.pool:
            raise UserError(f"'drawn' must be in 1..pool, pool={self.pool}. Got {self.drawn} instead.")
        if self.groups < 1 or self.groups * (1 + self.drawn) > self.batch_size:
            raise UserError(
                f"'groups' of 1 anchor and {self.drawn} neighbours must fit into batch_size={self.batch_size}. "
                f"Got groups={self.groups} instead."
            )

    @property
    def neighbors(self) -> int:
        """The pool that neighbours are drawn from."""
        return self.pool

    @property
    def counted_anchors(self) -> int:
        """The groups' anchors."""
        return self.groups

    def compose(self, anchors: Int64, given: Int32, rng: np.random.Generator) -> Batch:
        """Groups, then others; A = B."""
        columns = rng.permuted(np.tile(np.arange(self.pool), (len(anchors), 1)), axis=1)[:, : self.drawn]
        near = given[anchors[:, None], columns].astype(np.int64).ravel()
        chosen = without_repeats(np.concatenate([anchors, near[near >= 0]]))
        return Batch(self.filled(chosen, len(given), rng), self.batch_size)


@dataclass(frozen=True)
class RandomBatches(Sampler):
    """Random items, every one an anchor (A = B). An epoch is N / B steps; its last batch is filled up with others."""


@dataclass(frozen=True)
class BinaryLists(Sampler):
    """One anchor, positives among its nearest neighbours, and negatives from outside them: the binary baseline.

    The paper's baseline calls an anchor's 30 nearest neighbours positive and everything else negative; a list is the
    anchor, 5 drawn positives and 144 drawn negatives. Use it with ``binary-triplet(rule=nearest, k=5)``: the 5 items
    nearest to the anchor within such a list are exactly its positives.

    Attributes:
        positives: Positives in the batch.
        pool: Nearest neighbours that count as positive.
    """

    positives: int = 5
    pool: int = 30
    counted_anchors: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("positives", self.positives, min(self.pool, self.batch_size - 2))

    @property
    def neighbors(self) -> int:
        """The positives' pool."""
        return self.pool

    def compose(self, anchors: Int64, given: Int32, rng: np.random.Generator) -> Batch:
        """Anchor, positives, negatives; A = 1."""
        pool = given[anchors[0], : self.pool].astype(np.int64)
        pool = pool[pool >= 0]
        count = self.batch_size - 1 - min(self.positives, len(pool))
        if (left := len(given) - 1 - len(pool)) < count:
            said = f"A list takes {count} negatives from outside the anchor's {self.pool} nearest neighbours,"
            raise UserError(f"{said} but {len(given)} training items leave {left}. Lower batch_size or pool.")
        drawn = rng.permutation(pool)[: self.positives]
        negatives = others(np.concatenate([anchors, pool]), count, len(given), rng)
        return Batch(np.concatenate([anchors, drawn, negatives]), 1)


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
        _check_count("per_class", self.per_class, self.batch_size, least=2)

    def given(self, labels: LabelsOf) -> Int64:
        """The class numbers (N,)."""
        return labels.classes()

    def batch(self, given: Int64, *, seed: int, step: int) -> Batch:
        """The batch of global step ``step``; ``given`` are the class numbers (N,)."""
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


def without_repeats(items: Int64) -> Int64:
    """Every item once, in the order in which they come first."""
    _, first = np.unique(items, return_index=True)
    return items[np.sort(first)]


def _check_count(name: str, value: int, most: int, *, least: int = 1) -> None:
    if not least <= value <= most:
        raise UserError(f"'{name}' must be in {least}..{most}. Got {value} instead.")
