"""Other threads that draw random numbers, beside which a fork is not safe.

A fork copies the locks of torch's and NumPy's global generators as they are. If another thread holds one at that
moment, the new process waits for it forever when it seeds the generator.
"""

import threading
import time
from typing import Any

import numpy as np
import torch

_LOOKS = 5
_PAUSE = 0.002  # seconds between two looks, in which other threads run


def is_another_thread_drawing() -> bool:
    """Tell whether another thread draws from torch's or NumPy's global generator at the moment.

    A thread that draws rarely is not noticed; it is as unlikely to hold a lock at the moment of a fork.
    """
    if threading.active_count() == 1:
        return False
    before = _states()
    for _ in range(_LOOKS):
        time.sleep(_PAUSE)
        if _states() != before:
            return True
    return False


def _states() -> tuple[Any, ...]:
    _, numbers, *rest = np.random.get_state(legacy=True)  # noqa: NPY002 - the global generator itself
    return torch.get_rng_state().numpy().tobytes(), np.asarray(numbers).tobytes(), *rest
