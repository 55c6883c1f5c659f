"""The contract of a sampler: which items make a batch, and which of them are anchors.

A sampler is a frozen dataclass of settings. It says what it works from (``given``): neighbour lists, class numbers, or
nothing but the number of items. A batch is a pure function of (seed, epoch, step): there is no state to save, a run may
continue at any step, and data workers may make batches out of order. Every epoch takes every training item as a counted
anchor exactly once.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import Int32
from cml.errors import UserError

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Items of one batch; the first ``anchors`` of them are the anchors.

    Attributes:
        items: (B,) distinct item numbers.
        anchors: A, 1 <= A <= B.
    """

    items: Int64
    anchors: int


class ItemLabels(Protocol):
    """What a sampler may ask of the N labels of a training set; cml.training.targets answers."""

    def neighbors(self, k: int) -> Int32:
        """The ids (N, k) of the nearest labels of each label, -1 for none; of as many as there are."""

    def classes(self) -> Int64:
        """The class numbers (N,), 0..C-1.

        Raises:
            UserError: the labels are not classes.
        """


@dataclass(frozen=True)
class Sampler:
    """How batches are composed.

    Attributes:
        batch_size: B, items per batch.
    """

    batch_size: int = 150

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UserError(f"The 'batch_size' must be at least 2. Got {self.batch_size} instead.")

    @property
    def neighbors(self) -> int:
        """How many nearest neighbours of each item the sampler works from; 0 for none."""
        return 0

    def given(self, labels: ItemLabels) -> NDArray[Any]:
        """What the batches are made from, a row for each of the N items: neighbour ids (N, ``neighbors``)."""
        return labels.neighbors(self.neighbors)

    @property
    def counted_anchors(self) -> int:
        """Items of a batch that the epoch counts as its anchors: all of them, where the sampler does not say."""
        return self.batch_size

    def compose(self, anchors: Int64, given: NDArray[Any], rng: np.random.Generator) -> Batch:
        """Make a batch around ``anchors`` (C,) from what is ``given``: neighbour ids (N, k) have -1 for none.

        A sampler that does not say fills up with random items, every one of them an anchor (A = B).
        """
        return Batch(self.filled(anchors, len(given), rng), self.batch_size)

    def filled(self, chosen: Int64, items: int, rng: np.random.Generator) -> Int64:
        """The chosen items, then others of the N drawn at random, up to the batch size."""
        return np.concatenate([chosen, others(chosen, self.batch_size - len(chosen), items, rng)])

    def steps_per_epoch(self, items: int) -> int:
        """Batches in which every one of ``items`` training items is a counted anchor once."""
        return -(-items // self.counted_anchors)

    def check_count(self, items: int) -> None:
        """Raise ``UserError`` if there are fewer items than a batch takes."""
        if items < self.batch_size:
            raise UserError(
                f"A batch takes {self.batch_size} different items, but there are {items} training items. "
                f'Set the sampler to smaller batches, as in "random(batch_size={suited_batch(items)})".'
            )

    def batch(self, given: NDArray[Any], *, seed: int, step: int) -> Batch:
        """The batch of global step ``step`` (0-based, counted through all epochs).

        Args:
            given: What ``given`` asks for: (N, k) int32 neighbour ids, k >= ``neighbors``, which may be 0.
            seed: Of the run.
            step: Global step.

        Raises:
            UserError: fewer items than the batch, or too few neighbours.
        """
        items = len(given)
        self.check_count(items)
        if given.shape[1] < self.neighbors:
            raise UserError(f"This sampler needs {self.neighbors} neighbors per item. Got {given.shape[1]} instead.")
        epoch, within = divmod(step, self.steps_per_epoch(items))
        order = _epoch_order(items, seed, epoch)
        anchors = order[within * self.counted_anchors : (within + 1) * self.counted_anchors]
        return self.compose(anchors, given, np.random.default_rng((seed, epoch, within + 1)))


def suited_batch(items: int) -> int:
    """A batch size for so few items that the usual one is too large: half of them, so that batches differ."""
    return items if items < 20 else items // 2


def others(chosen: Int64, count: int, items: int, rng: np.random.Generator) -> Int64:
    """``count`` different items drawn at random from 0..items-1 that are not in ``chosen``."""
    if 4 * (len(chosen) + count) > items:  # few are left out: a permutation of the rest is cheaper than rejection
        left = np.setdiff1d(np.arange(items), chosen)
        return rng.permutation(left)[:count]
    taken = set(chosen.tolist())
    drawn: list[int] = []
    while len(drawn) < count:
        for item in rng.integers(items, size=count - len(drawn)).tolist():
            if item not in taken:
                taken.add(item)
                drawn.append(item)
    return np.array(drawn, np.int64)


def without_repeats(items: Int64) -> Int64:
    """Every item once, in the order in which they come first."""
    _, first = np.unique(items, return_index=True)
    return items[np.sort(first)]


@functools.lru_cache(maxsize=2)
def _epoch_order(items: int, seed: int, epoch: int) -> Int64:
    return np.random.default_rng((seed, epoch, 0)).permutation(items)
