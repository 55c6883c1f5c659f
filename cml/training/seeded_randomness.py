"""Random numbers that a data set of the user's own draws, as for augmentation: a function of seed, step and process."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

WORDS = 4  # random numbers that seed all generators

_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that is not in the fork may hold it
    os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def take_turns() -> Iterator[None]:
    """Let one thread at a time set and restore the process's global generators."""
    with _lock:
        yield


@contextlib.contextmanager
def seeded_randomness(*key: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch in the block, and restore them after it.

    So the same seed gives the same augmentation, for any number of data workers and after a continued run. Generators
    that a data set has made for itself are its own affair.
    """
    with restored_randomness():
        seed_generators(np.random.SeedSequence(key).generate_state(WORDS))
        yield


def seed_generators(
    words: NDArray[np.unsignedinteger],  # (WORDS,) random numbers of a ``SeedSequence``
) -> None:
    """Seed the global generators of Python, NumPy and torch."""
    numbers = words.tolist()
    random.seed(numbers[0])
    np.random.seed(numbers[1])  # noqa: NPY002
    torch.default_generator.manual_seed(numbers[2] << 32 | numbers[3])


@contextlib.contextmanager
def restored_randomness() -> Iterator[None]:
    """Restore the global generators of Python, NumPy and torch after the block; one thread at a time is in it."""
    with take_turns(), _restored():
        yield


@contextlib.contextmanager
def _restored() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - data sets still use it
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
