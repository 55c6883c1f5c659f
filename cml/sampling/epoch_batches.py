"""The batches of an epoch for a training loop of your own."""

from collections.abc import Iterator
from typing import Protocol

from cml.sampling.batch import Batch, Int64


class MakeBatch(Protocol):
    """A function that makes the batch of a step."""

    def __call__(self, *, step: int) -> Batch:
        """Make the batch of a step, counted through all epochs."""


class EpochBatches:
    """Batches as arrays of item numbers (B,); each time that it is iterated over, those of the next epoch.

    ``Sampler.batches`` makes it, and ``DataLoader(batch_sampler=..)`` takes it.

    Args:
        make_batch: Makes the batch of a step.
        steps: Steps of an epoch.

    Attributes:
        anchors: A: the first A items of a batch are its anchors, so that a loss takes label distances (A, B).
    """

    def __init__(self, make_batch: MakeBatch, steps: int) -> None:
        self._make_batch = make_batch
        self._steps = steps
        self._next_step = 0
        self.anchors = make_batch(step=0).anchors

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Int64]:
        """Yield the item numbers (B,) of each batch of the next epoch."""
        first = self._next_step
        self._next_step += self._steps
        for step in range(first, first + self._steps):
            yield self._make_batch(step=step).items
