"""Images decoded ahead of the network, in order, on several threads; unreadable ones are reported."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cml.data.images import UInt8
from cml.errors import DataError

Read = Callable[[Path], UInt8]
DEFAULT_THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Decoded:
    """One chunk of a list of images.

    Attributes:
        start: Index of its first image in the list.
        stop: Index after its last.
        items: Indices of the images that could be read.
        pixels: Their pixels, (H, W, 3) each.
        faults: Indices of the others, and what is wrong with each.
    """

    start: int
    stop: int
    items: list[int]
    pixels: list[UInt8]
    faults: dict[int, DataError]


def decoded_chunks(
    paths: Sequence[Path], read: Read, *, size: int, start: int = 0, threads: int = DEFAULT_THREADS, skip_bad: bool
) -> Generator[Decoded]:
    """Decode ``paths[start:]`` in chunks that begin at multiples of ``size``, one chunk ahead.

    Close it, as with ``contextlib.closing``: the garbage collector would wait for its threads at any point, and could
    hang in the start of another thread.

    Args:
        paths: N image files.
        read: Decodes one; called from several threads at a time.
        size: Images per chunk.
        start: The first one to read, a multiple of ``size``.
        threads: Images decoded at a time.
        skip_bad: Report an image that cannot be read in its chunk's ``faults``.

    Raises:
        DataError: an image cannot be read, without ``skip_bad``.
    """
    waiting: deque[tuple[int, list[Future[UInt8]]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for begin in range(start, len(paths), size):
                waiting.append((begin, [pool.submit(read, path) for path in paths[begin : begin + size]]))
                if len(waiting) > 1:
                    yield _gathered(*waiting.popleft(), skip_bad=skip_bad)
            while waiting:
                yield _gathered(*waiting.popleft(), skip_bad=skip_bad)
        finally:
            for _, futures in waiting:  # the consumer failed: end at once
                for future in futures:
                    future.cancel()


def _gathered(start: int, futures: list[Future[UInt8]], *, skip_bad: bool) -> Decoded:
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
