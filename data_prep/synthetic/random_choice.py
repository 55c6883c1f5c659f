"""A random choice, each as likely."""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


Rng = np.random.Generator


def pick(rng: Rng, choices: Sequence[T]) -> T:
    """Choose at random, each with the same probability.

    Args:
        rng: The random generator.
        choices: What to choose from.

    Returns:
        One of ``choices``.
    """
    return choices[int(rng.integers(len(choices)))]
