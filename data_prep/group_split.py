"""A random split that keeps whole groups together."""

import hashlib
from collections import Counter
from collections.abc import Mapping


def group_split(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """A random share of the items, given with their groups, as nearly as whole groups allow: never none, nor all."""
    sizes = Counter(groups.values())
    order = sorted(sizes, key=lambda group: hashlib.sha256(f"{salt}:{seed}:{group}".encode()).digest())
    wanted, total = round(share * len(groups)), 0
    chosen: set[str] = set()
    for group in order:
        if not chosen or (abs(total + sizes[group] - wanted) < abs(total - wanted) and len(chosen) + 1 < len(order)):
            chosen.add(group)
            total += sizes[group]
    return {item for item, group in groups.items() if group in chosen}
