"""The lists of the binary baseline: an anchor, positives among its nearest neighbours, and negatives from outside."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Int32, Int64
from cml.errors import UserError
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, check_setting, draw_others


@dataclass(frozen=True)
class BinarySampler(Sampler):
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
        check_setting("positives", self.positives, min(self.pool, self.batch_size - 2))

    @property
    def neighbors(self) -> int:
        """The positives' pool."""
        return self.pool

    def compose(
        self,
        anchors: Int64,
        state: Int32,  # neighbour ids (N, k), -1 for none
        rng: np.random.Generator,
    ) -> Batch:
        """Compose a batch of the anchor, positives and negatives."""
        pool = state[anchors[0], : self.pool].astype(np.int64)
        pool = pool[pool >= 0]
        count = self.batch_size - 1 - min(self.positives, len(pool))
        left = len(state) - 1 - len(pool)
        if left < count:
            raise UserError(
                f"A list takes {count} negatives from outside the anchor's {self.pool} nearest neighbours, but "
                f"{len(state)} training items leave {left}. Lower batch_size or pool."
            )
        positives = rng.permutation(pool)[: self.positives]
        negatives = draw_others(np.concatenate([anchors, pool]), count, len(state), rng)
        return Batch(np.concatenate([anchors, positives, negatives]), 1)
