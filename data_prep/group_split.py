"""A random split that keeps whole groups together."""

import hashlib
from collections import Counter
from collections.abc import Mapping

import numpy as np


def split_by_group(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """Choose a random share of items, whole groups at a time."""
    sizes = Counter(groups.values())
    names, digests, start = list(sizes), bytearray(), f"{salt}:{seed}:"
    for group in names:
        digests += hashlib.sha256(f"{start}{group}".encode()).digest()[:16]
    order = np.lexsort(np.frombuffer(digests, ">u8").reshape(-1, 2).T[::-1])  # by the first half of the digests
    wanted, total = round(share * len(groups)), 0
    chosen: set[str] = set()
    for group in map(names.__getitem__, order):
        if chosen and total >= wanted:
            break
        if not chosen or (abs(total + sizes[group] - wanted) < abs(total - wanted) and len(chosen) + 1 < len(order)):
            chosen.add(group)
            total += sizes[group]
    return {item for item, group in groups.items() if group in chosen}
