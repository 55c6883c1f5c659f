"""Drawing batches at random from a buffer that a stream fills: every item of a pass at most once."""

import itertools
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import numpy as np

T = TypeVar("T")


class Passes(Protocol[T]):
    """Items that come in passes."""

    def take(self, count: int) -> list[T]:
        """Take the next items of the pass; fewer where it ends."""

    def begin_pass(self) -> None:
        """Begin the next pass."""


def shuffled_batches(
    passes: Passes[T],
    *,
    batch_size: int,
    buffer: int,  # at least ``batch_size``
    make_generator: Callable[[int], np.random.Generator],  # the random numbers of a pass, by its number
    refuse: Callable[[int], Exception],  # the error where a pass has too few items, by their number
) -> Iterator[list[T]]:
    """Draw batches without end.

    Where a pass ends, the buffer empties, and the items that are left over, fewer than a batch, are dropped: a batch
    never holds an item twice.
    """
    for number in itertools.count():
        held, rng = passes.take(buffer), make_generator(number)
        if len(held) < batch_size:
            raise refuse(len(held))
        while len(held) >= batch_size:
            drawn = rng.permutation(len(held))[:batch_size].tolist()
            batch = [held[place] for place in drawn]
            for place in sorted(drawn, reverse=True):  # those at the end fill the gaps
                held[place] = held[-1]
                held.pop()
            yield batch
            del batch  # before others come in its place
            held += passes.take(buffer - len(held))
        del held
        passes.begin_pass()
