"""Files that anybody may have written: only regular ones are opened, and arrays are mapped without pickle."""

import contextlib
import errno
import hashlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.storage import system
from cml.storage.atomic import atomic_file


def open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file for reading."""
    descriptor = os.open(path, os.O_RDONLY | system.NO_WAIT | system.PLAIN)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def digest_file(path: Path) -> str:
    """Compute the SHA-256 of a regular file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_path(path: Path) -> contextlib.AbstractContextManager[str]:
    """Name a file for a library that takes only Unicode text, which the name of a file need not be."""
    name = str(path)
    is_text = name.encode(errors="ignore").decode() == name
    return contextlib.nullcontext(name) if is_text else system.other_name(path)


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
