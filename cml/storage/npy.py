"""Arrays in ``.npy`` files that strangers wrote: mapped into memory, so that a header can claim nothing it has not.

No pickle is read, a file shorter than its header says is refused before anything is allocated. Not for: writing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.storage.atomic import open_regular


def map_array(path: Path) -> NDArray[Any]:
    """The array of a ``.npy`` file, memory-mapped and read-only.

    Raises:
        OSError: the file is missing or cannot be read.
        ValueError: it is no whole ``.npy`` file of numbers; says why.
    """
    with open_regular(path) as file:
        if file.read(6) != b"\x93NUMPY":  # an archive or a pickle would be opened as what it is
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
