"""A share of a stream in the middle of a pass, read a chunk at a time.

Random numbers that the source draws, as for augmentation, depend on seed, pass, share and chunk alone.
"""

import contextlib
import itertools
import traceback
from collections.abc import Iterator
from typing import Any, Protocol

import torch.utils.data

from cml.errors import UserError
from cml.processes.memory import is_out_of_memory
from cml.training.randomness import seeded_randomness

CHUNK = 16  # items of a share that are read at a time


class Shares(Protocol):
    """What is read share by share: a ``LabelledStream``."""

    shares: int

    def open_share(self, share: int, epoch: int, seed: int) -> Iterator[Any]:
        """Begin a pass over one share."""
        ...


class OpenShare:
    """A share in the middle of a pass."""

    def __init__(self, stream: Shares, share: int, epoch: int, seed: int) -> None:
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


def read_pass(stream: Shares) -> Iterator[Any]:
    """Read the items of one pass as the source gives them, in the order of a training with seed 0."""
    open_shares = [OpenShare(stream, share, 0, 0) for share in range(stream.shares)]
    while not all(share.has_ended for share in open_shares):
        for share in open_shares:
            yield from (item for _, item in share.read())


def describe_item(share: int, number: int, shares: int) -> str:
    """Name an item of a stream."""
    return f"item {number}" if shares == 1 else f"item {number} of share {share}"


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
