"""Reading shares of a stream side by side, in data workers or here, in an order that does not depend on their number.

A pass goes round and round: a chunk of each share, until all shares have ended.
"""

import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch.utils.data import Dataset

from cml.streams.item_reader import Item, ItemReader
from cml.streams.labelled_stream import LabelledStream
from cml.streams.open_share import OpenShare, describe_item
from cml.streams.skipped_items import SkippedItems
from cml.training.data_workers import prefetch

_NOTHING = -1  # in place of a share


class Task(NamedTuple):
    """The next chunk of a share."""

    epoch: int
    share: int  # ``_NOTHING`` for no chunk, where there is none to read


class Chunk(NamedTuple):
    """Items of a share that follow each other."""

    epoch: int
    share: int
    items: list[Item]
    is_last: bool  # whether the share has ended
    faults: list[str]  # what is wrong with items that were left out


@dataclass(frozen=True)
class Part:
    """The part of a stream that one of several processes trains on: whole shares, or every ``size``-th item."""

    rank: int
    size: int  # processes
    shares: int

    @property
    def own_shares(self) -> list[int]:
        """The shares that the process reads."""
        every = range(self.shares)
        return [*every[self.rank :: self.size]] if self._takes_shares else [*every]

    def holds(self, share: int, number: int) -> bool:
        """Whether an item of a share, by its number there, is one of the process's."""
        return (share if self._takes_shares else number) % self.size == self.rank

    @property
    def _takes_shares(self) -> bool:
        return self.shares % self.size == 0


@dataclass(eq=False)
class ShareReader(Dataset[Chunk]):
    """Reads the items that a task asks for. Each process that reads keeps the shares open that it has begun."""

    stream: LabelledStream
    items: ItemReader
    part: Part
    seed: int
    read_before: Mapping[int, int]  # chunks of the first pass that were read before, by their shares
    _open: dict[int, OpenShare] = field(default_factory=dict)

    def __getitem__(self, task: Task) -> Chunk:
        """Read the chunk of a task."""
        if task.share == _NOTHING:
            return Chunk(task.epoch, task.share, [], False, [])
        share = self._open.get(task.share)
        if share is None or share.epoch != task.epoch:
            share = self._open[task.share] = OpenShare(self.stream, task.share, task.epoch, self.seed)
            for _ in range(self.read_before.get(task.share, 0) if task.epoch == 0 else 0):
                share.read()
        own = [(number, given) for number, given in share.read() if self.part.holds(task.share, number)]
        describe = functools.partial(describe_item, task.share, shares=self.stream.shares)
        read, faults = self.items.read_all(own, describe, skip_bad=self.stream.skip_bad)
        return Chunk(task.epoch, task.share, [item for _, item in read], share.has_ended, faults)


class Rounds:
    """The tasks of a process, without end. A share is always that of one worker, which torch gives tasks in turn.

    The pass is the one of ``epoch`` when a round begins.
    """

    def __init__(
        self,
        shares: Sequence[int],
        workers: int,
        epoch: int,
        first_share: int,  # the first round begins here
    ) -> None:
        self.epoch = epoch
        places = -(-len(shares) // max(1, workers)) * max(1, workers)
        self._shares = [*shares, *[_NOTHING] * (places - len(shares))]
        self._first_share = first_share

    def __iter__(self) -> Iterator[Task]:
        """Make tasks."""
        first = self._first_share
        while True:
            epoch = self.epoch
            first = first if epoch == 0 else 0
            for share in self._shares:
                yield Task(epoch, share if share >= first else _NOTHING)
            first = 0


class Arrivals:
    """The items of a process's part of a stream, pass by pass."""

    def __init__(
        self,
        reader: ShareReader,
        *,
        workers: int,
        timeout: float,  # seconds without a chunk after which workers hang; 0 for no limit
        first: Sequence[Item],  # items that were read before
        first_share: int,  # the share whose chunk is the next one
        ended: Sequence[int],  # shares whose first pass has ended
        skipped: SkippedItems,
    ) -> None:
        self._skipped = skipped
        self._shares = reader.part.own_shares
        self._ended = {share for share in ended if share in self._shares}
        self._pending = deque(first)
        self.epoch = 0
        self._rounds = Rounds(self._shares, workers, 0, first_share)
        self._chunks = prefetch(reader, self._rounds, workers=workers, timeout=timeout)

    @property
    def _is_over(self) -> bool:
        return len(self._ended) == len(self._shares)

    def take(self, count: int) -> list[Item]:
        """Take the next items of the pass; fewer where it ends."""
        while len(self._pending) < count and not self._is_over:
            chunk = next(self._chunks)
            if chunk.epoch != self.epoch or chunk.share == _NOTHING:  # asked for before the last pass was over
                continue
            self._pending.extend(chunk.items)
            self._skipped.note(chunk.faults)
            if chunk.is_last:
                self._ended.add(chunk.share)
        return [self._pending.popleft() for _ in range(min(count, len(self._pending)))]

    def begin_pass(self) -> None:
        """Begin the next pass, when the last one is over."""
        self.epoch += 1
        self._skipped.end_pass(self.epoch)
        self._rounds.epoch = self.epoch
        self._ended.clear()
        self._pending.clear()
