"""Drawing a dataset in chunks, on several processes: item i depends on the seed and i alone."""

import functools
import itertools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np

from cml.data_prep.synthetic.random_choice import Rng
from cml.errors import UserError

T = TypeVar("T")


Draw = Callable[[Rng, int], tuple[Any, ...]]
"""Draws one item of a size with a generator of its own; other processes can import it."""


_CHUNK = 100  # items that one process draws at a time


def draw_items(
    name: str,
    draw: Draw,
    count: int,  # number of items, at least 1
    *,
    size: int,  # side of the pictures in pixels, at least 16
    seed: int,  # random seed, at least 0
    workers: int,  # number of processes, at least 1
) -> list[Any]:
    """Draw items in order, on several processes if wanted.

    Item i has the generator of ``SeedSequence(seed, spawn_key=(i,))``: it depends on seed, size and i alone, so that a
    longer run begins with the items of a shorter one. Workers start new interpreters, so that a script needs the usual
    ``if __name__ == "__main__"``.
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
            script = f"with workers={workers} call it from a script file below `if __name__ == '__main__'`"
            raise UserError(f"{name}: a worker process ended; {script}, or use workers=1") from None
    columns = zip(*itertools.chain.from_iterable(drawn), strict=True)
    return [np.stack(column) if isinstance(column[0], np.ndarray) else column for column in columns]


def _draw_chunk(draw: Draw, items: range, size: int, seed: int) -> list[tuple[Any, ...]]:
    seeds = (np.random.SeedSequence(seed, spawn_key=(item,)) for item in items)
    return [draw(np.random.default_rng(own), size) for own in seeds]
