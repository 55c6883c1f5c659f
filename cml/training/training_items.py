"""training_items.npy of a run folder: digests of the items that were trained on, so that none passes for held out."""

import contextlib
from pathlib import Path

import numpy as np

from cml.array_types import UInt64
from cml.storage.atomic import atomic_file
from cml.storage.npy import map_array

TRAINING_ITEMS = "training_items.npy"


def save_training_items(folder: Path, digests: UInt64) -> None:
    """Write the digests of training items.

    Args:
        folder: The run folder.
        digests: (M,) as ``cml.data.item_digests.digest_items`` gives them.
    """
    if len(digests):
        with atomic_file(folder / TRAINING_ITEMS) as temporary:
            np.save(temporary, np.unique(digests), allow_pickle=False)


def load_training_items(folder: Path) -> UInt64:
    """Read the digests of training items.

    Args:
        folder: The run folder.

    Returns:
        (M,) digests; none of a run that does not have them, or whose file is damaged.
    """
    with contextlib.suppress(OSError, ValueError):
        digests = map_array(folder / TRAINING_ITEMS)
        if digests.dtype == np.uint64 and digests.ndim == 1:
            return np.array(digests)
    return np.empty(0, np.uint64)
