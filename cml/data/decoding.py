"""Images decoded ahead of the network, in order, on several threads; unreadable ones are reported."""

import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cml.data.images import Pixels
from cml.errors import DataError

DEFAULT_THREADS = min(8, os.cpu_count() or 1)


@dataclass(frozen=True)
class Decoded:
    """One chunk of a list of images.

    Attributes:
        start: Index of its first image.
        stop: Index behind its last image.
        items: Indices of the images that could be read.
        pixels: Their pixels, (H, W, 3) each; of vectors their numbers, (F,).
        faults: Indices of the others, and what is wrong with each.
    """

    start: int
    stop: int
    items: list[int]
    pixels: list[NDArray[Any]]
    faults: dict[int, DataError]


def decode_chunks(
    paths: Sequence[Path], read: Callable[[Path], Pixels], *, size: int, start: int = 0, threads: int, skip_bad: bool
) -> Generator[Decoded]:
    """Decode images in order, chunk by chunk, one chunk ahead of the caller, on several threads.

    Close it, as with ``contextlib.closing``: the garbage collector would wait for its threads at any point, and could
    hang in the start of another thread.

    Args:
        paths: The image files.
        read: Reads a file as pixels (H, W, 3).
        size: Images per chunk.
        start: Index of the first image to decode; those before it are left out.
        threads: Images decoded at a time.
        skip_bad: Report images that cannot be read as ``Decoded.faults``; otherwise the first one is the error.

    Yields:
        The chunks, the last of which may be smaller.

    Raises:
        DataError: An image cannot be read, without ``skip_bad``.
    """
    waiting: deque[tuple[int, list[Future[Pixels]]]] = deque()
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


def _gather_chunk(start: int, futures: list[Future[Pixels]], *, skip_bad: bool) -> Decoded:
    """Wait for the images of a chunk."""
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
