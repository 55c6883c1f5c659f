"""Images decoded ahead of the network, in order, on several threads; unreadable ones are reported."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from cml.data.images import Pixels
from cml.errors import DataError


@dataclass(frozen=True)
class Decoded:
    """One chunk of a list of images."""

    start: int  # index of its first image
    stop: int  # index behind its last image
    items: list[int]  # indices of the images that could be read
    pixels: list[NDArray[Any]]  # their pixels, (H, W, 3) each; of vectors their numbers, (F,)
    faults: dict[int, DataError]  # indices of the others, and what is wrong with each


def decode_chunks(
    paths: Sequence[Path],
    read: Callable[[Path], Pixels],  # reads a file as pixels (H, W, 3)
    *,
    size: int,
    start: int = 0,
    threads: int,
    skip_bad: bool,  # report images that cannot be read as ``Decoded.faults``; otherwise the first one is the error
) -> Generator[Decoded]:  # the chunks, the last of which may be smaller
    """Decode images in order, chunk by chunk, one chunk ahead of the caller, on several threads.

    Close it, as with ``contextlib.closing``: the garbage collector would wait for its threads at any point, and could
    hang in the start of another thread.
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
