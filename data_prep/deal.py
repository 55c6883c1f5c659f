"""Dealing a user's own items to train, query and gallery: exactly the share that was asked for, whole groups together.

Not for: public datasets, whose split is published or follows from each name alone (source.py).
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from cml.errors import UserError

FEW = 200  # test items; of fewer, each is a query that is searched among all others


class Sorted(Protocol):
    """An item with what decides its role: the split that its file states, or None, its group, its label."""

    name: str
    split: str | None
    group: str
    label: Any


def dealt(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """A random share of the items, in whole groups.

    Args:
        groups: Item to its group.
        share: Of the items; with groups of several items it is met as nearly as they allow.
        seed: Which share.
        salt: What it is for, so that shares for different things do not depend on each other.

    Returns:
        The items, of at least one group; one at least is left out where there are two.
    """
    sizes = Counter(groups.values())
    order = sorted(sizes, key=lambda group: hashlib.sha256(f"{salt}:{seed}:{group}".encode()).digest())
    wanted, total = round(share * len(groups)), 0
    chosen: set[str] = set()
    for group in order:
        if not chosen or (abs(total + sizes[group] - wanted) < abs(total - wanted) and len(chosen) + 1 < len(order)):
            chosen.add(group)
            total += sizes[group]
    return {item for item, group in groups.items() if group in chosen}


def roles(
    items: Sequence[Sorted], test_share: float, query_share: float, *, seed: int, classes: bool, grouped: bool
) -> dict[str, str]:
    """Train, query or gallery for every item; where nothing is gallery, queries are searched among themselves.

    Args:
        items: The items, each with its split or none.
        test_share: Share that is not for training, of the classes where labels are classes, where items have no split.
        query_share: Share of the test items that are queries, where there are ``FEW`` or groups; 1 for all of them,
            searched among themselves unless a gallery is named.
        seed: Which random split.
        classes: Whether labels are classes; whole ones are held out.
        grouped: Whether groups were given; items of one group must not find each other.
    """
    groups = {one.name: one.group for one in items}
    found = {one.name: one.split or "train" for one in items}
    if all(one.split is None for one in items):
        unseen = deal_classes((one.label for one in items), test_share) if classes else set()
        held = (
            {one.name for one in items if one.label in unseen}
            if classes
            else dealt(groups, test_share, seed=seed, salt="test")
        )
        found |= dict.fromkeys(held, "test")
    test = {name: groups[name] for name, role in found.items() if role == "test"}
    own_gallery = "gallery" in found.values()
    if query_share == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return found | dict.fromkeys(test, "query")
    queries = dealt(test, query_share, seed=seed, salt="query") if test else set()
    return found | {name: "query" if name in queries else "gallery" for name in test}


def deal_classes(classes: Iterable[str], test_share: float) -> set[str]:
    """The classes that are for testing alone: those of the least hashes of their names, one at least.

    Raises:
        UserError: there are fewer than 3 classes, 2 to train on and 1 that is never seen.
    """
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) < 3:
        got = ", ".join(map(repr, sorted(known))) or "none"
        raise UserError(
            f"There should be at least 3 classes, as testing takes classes that were not trained on. Got {got}; with "
            "fewer, name a split_column that says train, query and gallery."
        )
    return set(known[: min(max(1, math.floor(test_share * len(known) + 0.5)), len(known) - 2)])
