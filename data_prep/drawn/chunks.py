"""Drawing an embedded dataset in chunks, on several processes: item i depends on seed and i alone.

Not for: what is drawn (the folders beside this file).
"""

import functools
import itertools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np

from cml.errors import UserError

Draw = Callable[[np.random.Generator, int], tuple[Any, ...]]
"""Draws one item of a size with a generator of its own; other processes can import it."""

_CHUNK = 100  # items that one process draws at a time


def draw_items(name: str, draw: Draw, count: int, *, size: int, seed: int, workers: int) -> list[tuple[Any, ...]]:
    """Draw ``count`` items.

    Args:
        name: The drawing function, for errors.
        draw: Draws one item.
        count: How many, at least 1.
        size: Side of the images in pixels, at least 16; handed to ``draw``.
        seed: At least 0. Item i has the generator of ``SeedSequence(seed, spawn_key=(i,))``; seeds share no item.
        workers: Processes to draw in; the result is the same for any number. More than 1 start new interpreters, so
            that a script needs the usual ``if __name__ == "__main__"``.

    Returns:
        For each thing that ``draw`` gives, those of all items in order.

    Raises:
        UserError: an argument is out of its range, or the workers could not start.
    """
    for argument, value, least in (("count", count, 1), ("size", size, 16), ("seed", seed, 0), ("workers", workers, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise UserError(f"{name}: {argument} must be a whole number of at least {least}, got {value!r}")
    chunk = functools.partial(_draw_chunk, draw, size=size, seed=seed)
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    if workers == 1 or len(chunks) == 1:
        drawn = [chunk(items) for items in chunks]
    else:
        # Fresh interpreters: a fork would copy the locks of the threads that torch and BLAS hold.
        context = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
                drawn = list(pool.map(chunk, chunks))
        except BrokenProcessPool:
            raise UserError(
                f"{name}: a worker process ended; with workers={workers} call it from a script file below "
                "`if __name__ == '__main__'`, or use workers=1"
            ) from None
    return list(zip(*itertools.chain.from_iterable(drawn), strict=True))


def _draw_chunk(draw: Draw, items: range, size: int, seed: int) -> list[tuple[Any, ...]]:
    seeds = (np.random.SeedSequence(seed, spawn_key=(item,)) for item in items)
    return [draw(np.random.default_rng(own), size) for own in seeds]
