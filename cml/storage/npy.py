"""Arrays in untrusted ``.npy`` files: no pickle, and mapped, so that one that is too short is refused unread."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular


def map_array(path: Path) -> NDArray[Any]:
    """Map the array of a ``.npy`` file into memory, read-only."""
    with open_regular(path) as file:
        if file.read(6) != b"\x93NUMPY":  # NumPy would open an archive or a pickle as such
            raise ValueError("it is no .npy file")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy reads the header as Python text, and raises whatever that leads it to
        raise ValueError(str(error) or type(error).__name__) from None
    if array.dtype.kind not in "biufc":
        raise ValueError(f"it holds {array.dtype}, no plain numbers")
    return array


def load_or_compute_rows(
    path: Path,
    rows: int,  # the number of rows that the array must have, N
    compute: Callable[[], Float32],  # computes the array, (N, D)
) -> Float32:  # the array, (N, D)
    """Load an array from a file of the cache; it is computed and kept there if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        cached: Float32 = map_array(path)
        if cached.ndim == 2 and len(cached) == rows:
            return np.array(cached)
    array = compute()
    with contextlib.suppress(OSError), atomic_file(path) as temporary:  # a cache that cannot be written costs only time
        np.save(temporary, array, allow_pickle=False)
    return array
