"""A random split that keeps whole groups together."""

import hashlib
from collections import Counter
from collections.abc import Mapping


def split_by_group(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """Choose a random share of items, whole groups at a time."""
    sizes = Counter(groups.values())
    order = sorted(sizes, key=lambda group: hashlib.sha256(f"{salt}:{seed}:{group}".encode()).digest())
    wanted, total = round(share * len(groups)), 0
    chosen: set[str] = set()
    for group in order:
        if chosen and total >= wanted:
            break
        if not chosen or (abs(total + sizes[group] - wanted) < abs(total - wanted) and len(chosen) + 1 < len(order)):
            chosen.add(group)
            total += sizes[group]
    return {item for item, group in groups.items() if group in chosen}
