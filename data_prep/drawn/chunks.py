"""Drawing an embedded dataset in chunks, on several processes: item i depends on seed and i alone.

Not for: what is drawn (``synthetic``, ``rooms``, ``scenes``).
"""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

T = TypeVar("T")
Draw = Callable[[np.random.Generator, int], tuple[NDArray[Any], ...]]
"""Draws one item of a size with a generator of its own: arrays, of one shape for all items."""

_CHUNK = 100  # items that one process draws at a time


def check_drawing(name: str, *, count: int, size: int, seed: int, workers: int) -> None:
    """Raise ``UserError`` unless the arguments of the drawing function ``name`` are in their ranges."""
    for argument, value, least in (("count", count, 1), ("size", size, 16), ("seed", seed, 0), ("workers", workers, 1)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise UserError(f"{name}: {argument} must be a whole number of at least {least}, got {value!r}")


def draw_chunks(name: str, draw: Draw, count: int, *, size: int, seed: int, workers: int) -> tuple[NDArray[Any], ...]:
    """Draw ``count`` items.

    Args:
        name: The drawing function, for errors.
        draw: Draws one item; a function of a module, so that other processes can import it.
        count: How many.
        size: Handed to ``draw``.
        seed: Item i has the generator of ``SeedSequence(seed, spawn_key=(i,))``.
        workers: Processes; with more than 1 they are new interpreters.

    Returns:
        The arrays of ``draw``, each with the items as its first axis.

    Raises:
        UserError: the workers could not start.
    """
    drawn = drawn_in_chunks(name, functools.partial(_draw_chunk, draw, size=size, seed=seed), count, workers)
    return tuple(np.concatenate(arrays) for arrays in zip(*drawn, strict=True))


def drawn_in_chunks(name: str, draw_chunk: Callable[[range], T], count: int, workers: int) -> list[T]:
    """What ``draw_chunk`` makes of each range of items, in order.

    Args:
        name: The drawing function, for errors.
        draw_chunk: Draws the items of a range; other processes can import it.
        count: How many items.
        workers: Processes; with more than 1 they are new interpreters.

    Raises:
        UserError: the workers could not start.
    """
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    if workers == 1 or len(chunks) == 1:
        return [draw_chunk(items) for items in chunks]
    # Fresh interpreters: a fork would copy the locks of the threads that torch and BLAS hold.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(min(workers, len(chunks)), mp_context=context) as pool:
            return list(pool.map(draw_chunk, chunks))
    except BrokenProcessPool:
        raise UserError(
            f"{name}: a worker process ended; with workers={workers} call it from a script file below "
            "`if __name__ == '__main__'`, or use workers=1"
        ) from None


def _draw_chunk(draw: Draw, items: range, size: int, seed: int) -> tuple[NDArray[Any], ...]:
    seeds = (np.random.SeedSequence(seed, spawn_key=(item,)) for item in items)
    drawn = [draw(np.random.default_rng(own), size) for own in seeds]
    return tuple(np.stack(arrays) for arrays in zip(*drawn, strict=True))
