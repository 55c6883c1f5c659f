"""Images decoded ahead of the network, in order, on several threads; unreadable ones are reported."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cml.data.images import UInt8
from cml.errors import DataError

DEFAULT_THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Decoded:
    """One chunk of a list of images, ``start`` to ``stop``."""

    start: int
    stop: int
    items: list[int]  # indices of the images that could be read
    pixels: list[UInt8]  # theirs, (H, W, 3) each
    faults: dict[int, DataError]  # indices of the others, and what is wrong with each


def decode_chunks(
    paths: Sequence[Path], read: Callable[[Path], UInt8], *, size: int, start: int = 0, threads: int, skip_bad: bool
) -> Generator[Decoded]:
    """Decode ``paths[start:]`` in chunks that begin at multiples of ``size``, one chunk ahead, on several threads.

    Close it, as with ``contextlib.closing``: the garbage collector would wait for its threads at any point, and could
    hang in the start of another thread.
    """
    waiting: deque[tuple[int, list[Future[UInt8]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for begin in range(start, len(paths), size):
                waiting.append((begin, [pool.submit(read, path) for path in paths[begin : begin + size]]))
                if len(waiting) > 1:
                    yield _gather_chunk(*waiting.popleft(), skip_bad=skip_bad)
            while waiting:
                yield _gather_chunk(*waiting.popleft(), skip_bad=skip_bad)
        finally:
            for _, futures in waiting:  # the consumer failed: end at once
                for future in futures:
                    future.cancel()


def _gather_chunk(start: int, futures: list[Future[UInt8]], *, skip_bad: bool) -> Decoded:
    chunk = Decoded(start, start + len(futures), [], [], {})
    for item, future in enumerate(futures, start):
        try:
            pixels = future.result()
        except DataError as error:
            if not skip_bad:
                for other in futures:
                    other.cancel()
                raise DataError(f"{error} (With --skip-bad such images are left out and listed.)") from None
            chunk.faults[item] = error
        else:
            chunk.items.append(item)
            chunk.pixels.append(pixels)
    return chunk
