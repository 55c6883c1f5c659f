"""Reading shares of a stream side by side, in data workers or here, in an order that does not depend on their number.

A pass goes round and round: a chunk of each share, until all shares have ended. Chunk by chunk, random numbers that the
source draws, as for augmentation, depend on seed, pass, share and chunk alone.
"""

import contextlib
import itertools
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch.utils.data
from torch.utils.data import Dataset

from cml.errors import UserError
from cml.processes.memory import is_out_of_memory
from cml.streams.item_reader import Item, ItemReader
from cml.streams.labelled_stream import LabelledStream
from cml.training.data_workers import prefetch
from cml.training.randomness import seeded_randomness

CHUNK = 16  # items of a share that are read at a time
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


class OpenShare:
    """A share in the middle of a pass."""

    def __init__(self, stream: LabelledStream, share: int, epoch: int, seed: int) -> None:
        self.epoch, self.count, self.has_ended = epoch, 0, False
        self._stream, self._share, self._seed = stream, share, seed
        self._chunks = 0
        self._items: Iterator[Any] | None = None

    def read(self) -> list[tuple[int, Any]]:  # up to ``CHUNK`` items as the source gives them, with their numbers
        """Read the next chunk."""
        if self.has_ended:
            return []
        chunk: list[Any] = []
        key = (self._seed, self.epoch, self._share, self._chunks)
        with seeded_randomness(*key), _worker_info(self._share, self._stream.shares):
            try:
                if self._items is None:
                    self._items = self._stream.open_share(self._share, self.epoch, self._seed)
                for item in itertools.islice(self._items, CHUNK):
                    chunk.append(item)
            except UserError:
                raise
            except Exception as error:  # a source of the user's own may raise anything
                if is_out_of_memory(error):
                    raise
                reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
                name = describe_item(self._share, self.count + len(chunk), self._stream.shares)
                if _is_of_pillow(error):
                    raise UserError(
                        f"The stream cannot be read at {name}: its image cannot be read ({reason}). Replace it, or "
                        "leave the item out."
                    ) from error
                raise UserError(f"The stream cannot be read at {name} ({reason}).") from error
        self._chunks += 1
        self.has_ended = len(chunk) < CHUNK
        if self.has_ended:
            self._items = None
        numbered = [*enumerate(chunk, self.count)]
        self.count += len(chunk)
        return numbered


def _is_of_pillow(error: Exception) -> bool:
    """Whether an error comes from decoding an image."""
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(error.__traceback__)]
    return modules[-1].partition(".")[0] == "PIL"


def read_pass(stream: LabelledStream) -> Iterator[Any]:
    """Read the items of the first pass as the source gives them, in the order of a training with seed 0."""
    open_shares = [OpenShare(stream, share, 0, 0) for share in range(stream.shares)]
    while not all(share.has_ended for share in open_shares):
        for share in open_shares:
            yield from (item for _, item in share.read())


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
            return Chunk(task.epoch, task.share, [], False)
        share = self._open.get(task.share)
        if share is None or share.epoch != task.epoch:
            share = self._open[task.share] = OpenShare(self.stream, task.share, task.epoch, self.seed)
            for _ in range(self.read_before.get(task.share, 0) if task.epoch == 0 else 0):
                share.read()
        own = [(number, given) for number, given in share.read() if self.part.holds(task.share, number)]
        shares = self.stream.shares
        read = [self.items.read(given, number, describe_item(task.share, number, shares)) for number, given in own]
        return Chunk(task.epoch, task.share, read, share.has_ended)


def describe_item(share: int, number: int, shares: int) -> str:
    """Name an item of a stream."""
    return f"item {number}" if shares == 1 else f"item {number} of share {share}"


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
    ) -> None:
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
            if chunk.is_last:
                self._ended.add(chunk.share)
        return [self._pending.popleft() for _ in range(min(count, len(self._pending)))]

    def begin_pass(self) -> None:
        """Begin the next pass, when the last one is over."""
        self.epoch += 1
        self._rounds.epoch = self.epoch
        self._ended.clear()
        self._pending.clear()


@contextlib.contextmanager
def _worker_info(share: int, shares: int) -> Iterator[None]:
    """Answer ``torch.utils.data.get_worker_info`` in the block: by the share, or None where there is but one."""
    module = vars(torch.utils.data._utils.worker)
    before = module["_worker_info"]
    own = module["WorkerInfo"](id=share, num_workers=shares, seed=share, dataset=None)
    module["_worker_info"] = None if shares == 1 else own
    try:
        yield
    finally:
        module["_worker_info"] = before
