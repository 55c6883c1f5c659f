"""A random choice, each as likely."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


Rng = np.random.Generator


def pick(rng: Rng, choices: Sequence[T]) -> T:  # one of ``choices``
    """Choose at random, each with the same probability."""
    return choices[int(rng.integers(len(choices)))]
