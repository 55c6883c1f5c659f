"""The batches of an epoch for a training loop of your own; each of several processes gets its part of them."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from cml.array_types import Int64
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks


@dataclass(frozen=True)
class Batch:
    """Items of one batch; the first ``anchors`` of them are the anchors.

    Attributes:
        items: (B,) distinct item numbers.
        anchors: A, 1 <= A <= B.

    Example:
        >>> import numpy as np
        >>> len(Batch(np.array([4, 7, 1]), anchors=1).items)
        3
    """

    items: Int64
    anchors: int


class MakeBatch(Protocol):
    """A function that makes the batch of a step."""

    def __call__(self, *, step: int) -> Batch:
        """Make the batch of a step, counted through all epochs."""


class EpochBatches:
    """Batches as lists of item numbers; each time that it is iterated over, those of the next epoch.

    ``Sampler.batches`` makes it, and ``DataLoader(batch_sampler=...)`` takes it. After
    ``torch.distributed.init_process_group``, each process gets its part of every batch. The parts of all processes in
    the order of ranks, as ``cml.distributed.gather`` puts them together, are the batch of one process.

    Args:
        make_batch: Makes the batch of a step.
        steps: Steps of an epoch.
        batch_size: B, items of a whole batch.
        seed: The seed of the batches, which a ``state_dict`` names.
        drop_last: Not used: Lightning passes it when it tries to make the batches anew.

    Attributes:
        anchors: A: the first A items of a batch are its anchors, so that a loss takes label distances (A, B). With
            several processes, they are the first A of the gathered batch.
        drop_last: False: the last batch of an epoch is filled up with other items.

    Example:
        >>> from cml import sampling
        >>> batches = sampling.get("random(batch_size=4)").batches("euclidean", list(range(10)))
        >>> len(batches), batches.anchors
        (3, 4)

    Raises:
        UserError: Lightning tries to make the batches anew, in order to split them.
    """

    def __init__(
        self, make_batch: MakeBatch, steps: int = 0, *, batch_size: int, seed: int = 0, drop_last: bool = False
    ) -> None:
        if not callable(make_batch):
            raise UserError(
                "Lightning cannot split these batches, and each process gets its part of them already: set "
                "use_distributed_sampler=False in the Trainer, and predict with a DataLoader without batch_sampler."
            )
        self._make_batch = make_batch
        self._steps = steps
        self._items = batch_size
        self._seed = seed
        self._epoch, self._next = 0, 0  # the next batch is number _next of _epoch
        self._is_begun = False  # whether that epoch is being iterated over
        self.drop_last = False
        self.anchors = make_batch(step=0).anchors

    @property
    def batch_size(self) -> int:
        """Items of a process's part of a batch; where parts differ by one item, of the smaller ones."""
        return self._items // _find_ranks().size

    @property
    def sampler(self) -> "EpochBatches":
        """These batches: Lightning and Accelerate call ``batch_sampler.sampler.set_epoch`` before each epoch."""
        return self

    def __len__(self) -> int:
        """Batches of an epoch; the same in every process."""
        return self._steps * (_find_ranks().size if _is_shard(sys._getframe(1)) else 1)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the item numbers of each batch of the next epoch: all B, or this process's part of them."""
        ranks = _find_ranks()
        if ranks.size > self._items:
            raise UserError(
                f"A batch of {self._items} items cannot be split over {ranks.size} processes: set the sampler's "
                "batch_size, or start fewer of them."
            )
        # Accelerate deals out what it is given, one to each process in turn: all parts, then, not those of this process
        return self._parts(slice(None) if _is_shard(sys._getframe(1)) else slice(ranks.rank, ranks.rank + 1), ranks)

    def _parts(self, chosen: slice, ranks: "Ranks") -> Iterator[list[int]]:
        if self._is_begun:  # the last iteration was left early
            self._epoch, self._next = self._epoch + 1, 0
        self._is_begun = True
        epoch = self._epoch
        for batch in range(self._next, self._steps):
            items = self._make_batch(step=epoch * self._steps + batch).items
            self._epoch, self._next = epoch, batch + 1
            for share in ranks.shares(len(items))[chosen]:
                yield items[share].tolist()
        self._epoch, self._next, self._is_begun = epoch + 1, 0, False

    def set_epoch(self, epoch: int, *, batch: int | None = None) -> None:
        """Choose the epoch of the next iteration, as Lightning and Accelerate do before each.

        Args:
            epoch: Number of the epoch, from 0.
            batch: Batches of the epoch to leave out. None for none, unless ``load_state_dict`` has named that epoch:
                then those of the state.

        Raises:
            UserError: There is no such epoch or batch.
        """
        for name, value, most in (("epoch", epoch, None), ("batch", batch or 0, self._steps)):
            if not _is_count(value) or (most is not None and value > most):
                limit = "of at least 0" if most is None else f"in 0..{most}"
                raise UserError(f"The {name!r} must be a whole number {limit}. Got {value!r} instead.")
        if batch is not None or self._is_begun or epoch != self._epoch:
            self._epoch, self._next, self._is_begun = epoch, batch or 0, False

    def state_dict(self) -> dict[str, int]:
        """The place of the next batch, for a checkpoint; it holds for any number of processes.

        A loader that draws ahead, as one with workers does, has drawn more batches than were trained on. Then count the
        steps of the epoch, and continue by ``set_epoch(epoch, batch=steps)`` instead.

        Returns:
            ``epoch`` and ``batch``; and ``seed``, ``steps`` of an epoch and ``batch_size``, which tell whose it is.
        """
        is_complete = self._next == self._steps
        epoch, batch = (self._epoch + 1, 0) if is_complete else (self._epoch, self._next)
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue where a ``state_dict`` was made: the next iteration begins there.

        Args:
            state: The result of ``state_dict``.

        Raises:
            UserError: It is something else, or of other batches.
        """
        identity = self._identity()
        if not isinstance(state, Mapping) or {"epoch", "batch", *identity} - state.keys():
            raise UserError("load_state_dict of batches takes the result of their state_dict. Got something else.")
        for name, value in identity.items():
            if state[name] != value:
                raise UserError(f"The state is that of other batches: its {name!r} is {state[name]}, not {value}.")
        self.set_epoch(state["epoch"], batch=state["batch"])

    def _identity(self) -> dict[str, int]:
        return {"seed": self._seed, "steps": self._steps, "batch_size": self._items}


def _find_ranks() -> "Ranks":
    from cml.processes.ranks import find_ranks  # it imports torch, which drawing batches does not need by itself

    return find_ranks()


def _is_shard(caller: FrameType) -> bool:
    """Whether the caller is Accelerate's ``BatchSamplerShard``, which ``accelerator.prepare`` puts around batches.

    Nothing else tells it apart from a loader that was not prepared, of which each process iterates its own part.
    """
    shard = caller.f_locals.get("self")
    if type(shard).__name__ != "BatchSamplerShard":
        return False
    if getattr(shard, "split_batches", False):
        raise UserError("Each process gets its part of these batches already: leave split_batches=True out.")
    return True


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
