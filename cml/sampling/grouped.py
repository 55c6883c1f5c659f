"""Several anchors with some of the nearest neighbours of each, and random others."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import Int32, Int64
from cml.errors import UserError
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, drop_repeats


@dataclass(frozen=True)
class GroupedSampler(Sampler):
    """Several anchors, some of the nearest neighbours of each, and random others; every item is an anchor (A = B).

    The closed form of the log-ratio loss makes all B anchors as cheap as one, and close pairs are what retrieval is
    judged by: hence several groups in a batch. An epoch counts the groups' anchors.

    Attributes:
        groups: Anchors that bring neighbours along.
        drawn: Neighbours drawn for each of these anchors from its ``pool``.
        pool: How many nearest neighbours of an anchor are drawn from.
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
                f"Got groups={self.groups} instead; at most {self.batch_size // (1 + self.drawn)} fit."
            )

    @property
    def neighbors(self) -> int:
        """The pool that neighbours are drawn from."""
        return self.pool

    @property
    def counted_anchors(self) -> int:
        """The groups' anchors."""
        return self.groups

    def compose(
        self,
        anchors: Int64,  # item numbers (C,) of the groups' anchors
        state: Int32,  # neighbour ids (N, k), -1 for none
        rng: np.random.Generator,
    ) -> Batch:
        """Compose a batch of groups, then others."""
        columns = rng.permuted(np.tile(np.arange(self.pool), (len(anchors), 1)), axis=1)[:, : self.drawn]
        near = state[anchors[:, None], columns].astype(np.int64).ravel()
        chosen = drop_repeats(np.concatenate([anchors, near[near >= 0]]))
        return Batch(self.fill_batch(chosen, len(state), rng), self.batch_size)
