"""One anchor, its nearest neighbours and random others: the lists of the paper."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Int32, Int64
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler, check_setting


@dataclass(frozen=True)
class DenseSampler(Sampler):
    """One anchor, its nearest neighbours, and random others ("Deep Metric Learning Beyond Binary Supervision").

    The paper's lists: 150 items with 5 nearest neighbours, one anchor, as many steps an epoch as there are items.

    Attributes:
        nearest: Nearest neighbours of the anchor in the batch; 0 draws all others at random, which is the naive
            sampling that the paper's lists are compared with.
    """

    nearest: int = 5
    counted_anchors: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_setting("nearest", self.nearest, self.batch_size - 1, least=0)

    @property
    def neighbors(self) -> int:
        """The anchor's nearest neighbours."""
        return self.nearest

    def compose(
        self,
        anchors: Int64,
        state: Int32,  # neighbour ids (N, k), -1 for none
        rng: np.random.Generator,
    ) -> Batch:
        """Compose a batch of the anchor, its nearest neighbours and others."""
        near = state[anchors[0], : self.nearest].astype(np.int64)
        return Batch(self.fill_batch(np.concatenate([anchors, near[near >= 0]]), len(state), rng), 1)
