"""Arrays in untrusted ``.npy`` files: no pickle, and mapped, so that one that is too short is refused unread."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.storage.atomic import atomic_file, open_regular


def map_array(path: Path) -> NDArray[Any]:
    """The array of a ``.npy`` file, memory-mapped and read-only; ``ValueError`` says why it is none of numbers."""
    with open_regular(path) as file:
        if file.read(6) != b"\x93NUMPY":  # NumPy would open an archive or a pickle as such
            raise ValueError("it is no .npy file")
    try:
        found: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # NumPy reads the header as Python text, and raises whatever that leads it to
        raise ValueError(str(error) or type(error).__name__) from None
    if found.dtype.kind not in "biufc":
        raise ValueError(f"it holds {found.dtype}, no plain numbers")
    return found


def load_or_compute_rows(path: Path, rows: int, compute: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
    """The array (``rows``, D) in a file of the cache; computed and kept there if it is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found: NDArray[np.float32] = map_array(path)
        if found.ndim == 2 and len(found) == rows:
            return np.array(found)
    made = compute()
    with contextlib.suppress(OSError), atomic_file(path) as temporary:  # a cache that cannot be written costs only time
        np.save(temporary, made, allow_pickle=False)
    return made
