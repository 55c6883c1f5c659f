"""Sets of names packed as arrays, and how many names two of them share: what jaccard and hamming count with.

Names become 64-bit digests, so that labels encoded apart agree without a common vocabulary (two different names meet
in one digest with a probability of about 3e-8 among a million names). Overlaps are counted by matrix products over the
names that occur on both sides.
"""

import functools
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float32, UInt64
from cml.distances.labels import Labels

MOST_DENSE = 4096  # names up to which a dense product is faster than a sparse one
_TILE = 1024


def pack_sets(
    sets: Sequence[Iterable[str]],
) -> Labels:  # arrays ``digests`` (N, M) uint64, M the size of the largest set, and ``size`` (N,) int32, how many count
    """Pack sets of names as digests."""
    digests = [np.unique(np.array([_digest(name) for name in names], np.uint64)) for names in sets]
    size = np.array([len(row) for row in digests], np.int32)
    packed = np.zeros((len(digests), size.max()), np.uint64)
    packed[np.arange(packed.shape[1]) < size[:, None]] = np.concatenate(digests)
    return Labels({"digests": packed, "size": size})


def count_shared(a: Labels, b: Labels) -> Float32:  # (A, B) float32 whole numbers
    """Count the names that two sets share."""
    result = np.zeros((len(a), len(b)), np.float32)
    names = np.intersect1d(a.arrays["digests"], b.arrays["digests"])  # sorted; padding among them matches nothing
    if len(names) == 0:
        return result
    dense = len(names) <= MOST_DENSE
    right = _members(b, names, dense=dense).T
    for start in range(0, len(a), _TILE):
        product = _members(a[start : start + _TILE], names, dense=dense) @ right
        result[start : start + _TILE] = product if dense else product.toarray()
    return result


def _members(labels: Labels, names: UInt64, *, dense: bool) -> Any:  # noqa: ANN401 - an array or a sparse matrix
    """Find which of the sorted ``names`` each set has: (N, len(names)) float32 of 0 and 1."""
    digests = labels.arrays["digests"]
    places = np.minimum(np.searchsorted(names, digests), len(names) - 1)
    filled = np.arange(digests.shape[1]) < labels.arrays["size"][:, None]  # not padding
    rows, slots = np.nonzero(filled & (names[places] == digests))
    columns = places[rows, slots]
    if dense:
        members = np.zeros((len(labels), len(names)), np.float32)
        members[rows, columns] = 1
        return members
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(labels), len(names)))


@functools.lru_cache(maxsize=1 << 16)
def _digest(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
