"""A file of digests of items, 8 bytes each, with a checksum as its last number."""

import hashlib
from pathlib import Path

import numpy as np

from cml.array_types import UInt64
from cml.errors import DataError
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import map_array


def save_digests(path: Path, digests: UInt64) -> None:  # (M,) as ``item_digests.digest_items`` gives them
    """Write digests in ascending order, each once, and their checksum; no file where there are none."""
    if len(digests):
        digests = np.unique(digests)
        with atomic_file(path) as temporary:
            np.save(temporary, np.append(digests, _checksum(digests)), allow_pickle=False)


def load_digests(
    path: Path,
    mend: str,  # what to do about a damaged file
) -> UInt64:  # (M,) digests; none where there is no file
    """Read digests."""
    if not path.exists():
        return np.empty(0, np.uint64)
    try:
        digests = map_array(path)
    except ValueError as error:
        raise DataError(f"{path} is damaged ({' '.join(str(error).split())}). {mend}") from None
    if digests.dtype != np.uint64 or digests.ndim != 1:
        raise DataError(f"{path} holds {digests.dtype} of shape {digests.shape}, no digests of items. {mend}")
    known = np.array(digests[:-1])
    if len(digests) == 0 or digests[-1] != _checksum(known):
        raise DataError(f"{path} is damaged: its checksum is wrong. {mend}")
    return known


def _checksum(digests: UInt64) -> np.uint64:
    return np.uint64(np.frombuffer(hashlib.blake2b(digests.tobytes(), digest_size=8).digest(), np.uint64)[0])
