"""The four ways to compose a batch: dense lists, grouped lists, random batches, and the binary baseline's lists."""

from dataclasses import dataclass

import numpy as np

from cml.distances.label_distance import Int32
from cml.errors import UserError
from cml.sampling.sampler import Batch, Int64, Sampler, others, without_repeats


@dataclass(frozen=True)
class DenseLists(Sampler):
    """One anchor, its nearest neighbours, and random others ("Deep Metric Learning Beyond Binary Supervision").

    The paper's lists: 150 items with 5 nearest neighbours, one anchor, as many steps an epoch as there are items.

    Attributes:
        nearest: Nearest neighbours of the anchor in the batch.
    """

    nearest: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("nearest", self.nearest, self.batch_size - 1)

    @property
    def neighbors(self) -> int:
        """The anchor's nearest neighbours."""
        return self.nearest

    @property
    def counted_anchors(self) -> int:
        """One."""
        return 1

    def compose(self, anchors: Int64, given: Int32, rng: np.random.Generator) -> Batch:
        """Anchor, nearest neighbours, others; A = 1."""
        near = given[anchors[0], : self.nearest].astype(np.int64)
        near = near[near >= 0]
        return Batch(self.filled(np.concatenate([anchors, near]), len(given), rng), 1)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_count("positives", self.positives, min(self.pool, self.batch_size - 2))

    @property
    def neighbors(self) -> int:
        """The positives' pool."""
        return self.pool

    @property
    def counted_anchors(self) -> int:
        """One."""
        return 1

    def compose(self, anchors: Int64, given: Int32, rng: np.random.Generator) -> Batch:
        """Anchor, positives, negatives; A = 1."""
        pool = given[anchors[0], : self.pool].astype(np.int64)
        pool = pool[pool >= 0]
        count = self.batch_size - 1 - min(self.positives, len(pool))
        if len(given) - 1 - len(pool) < count:
            raise UserError(
                f"A list takes {count} negatives from outside the anchor's {self.pool} nearest neighbours, but "
                f"{len(given)} training items leave {len(given) - 1 - len(pool)}. Lower batch_size or pool."
            )
        drawn = rng.permutation(pool)[: self.positives]
        negatives = others(np.concatenate([anchors, pool]), count, len(given), rng)
        return Batch(np.concatenate([anchors, drawn, negatives]), 1)


def _check_count(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise UserError(f"'{name}' must be in 1..{most}. Got {value} instead.")
