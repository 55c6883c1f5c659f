"""Dealing a user's own items to train, query and gallery: exactly the share asked for, whole groups together."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from cml.data_prep.folder_labels import Labelled
from cml.errors import UserError

FEW = 200  # test items; of fewer, each is a query that is searched among all others


def dealt(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """A random share of the items, given with their groups; as nearly as whole groups of several items allow.

    ``salt`` says what it is for, so that shares for different things do not depend on each other. At least one group is
    chosen; one at least is left out where there are two.
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
    items: Sequence[Labelled], test_share: float, query_share: float, *, seed: int, classes: bool, grouped: bool
) -> dict[str, str]:
    """Train, query or gallery for every item; where nothing is gallery, queries are searched among themselves.

    Where no item has a split, ``test_share`` of them, or of whole classes, is for testing. ``query_share`` of the test
    items are queries, where there are ``FEW`` or groups; with 1 all are, searched among themselves unless a gallery is
    named. ``grouped``: groups were given, whose items must not find each other.
    """
    groups = {one.name: one.group for one in items}
    found = {one.name: one.split or "train" for one in items}
    if all(one.split is None for one in items):
        if classes:
            unseen = deal_classes((one.label for one in items), test_share)
            held = {one.name for one in items if one.label in unseen}
        else:
            held = dealt(groups, test_share, seed=seed, salt="test")
        found |= dict.fromkeys(held, "test")
    test = {name: groups[name] for name, role in found.items() if role == "test"}
    own_gallery = "gallery" in found.values()
    if query_share == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return found | dict.fromkeys(test, "query")
    queries = dealt(test, query_share, seed=seed, salt="query") if test else set()
    return found | {name: "query" if name in queries else "gallery" for name in test}


def deal_classes(classes: Iterable[str], test_share: float) -> set[str]:
    """The classes that are for testing alone: those of the least hashes of their names, one at least."""
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) < 3:  # 2 to train on and 1 that is never seen
        got = ", ".join(map(repr, sorted(known))) or "none"
        raise UserError(
            f"There should be at least 3 classes, as testing takes classes that were not trained on. Got {got}; with "
            "fewer, name a split_column that says train, query and gallery."
        )
    return set(known[: min(max(1, math.floor(test_share * len(known) + 0.5)), len(known) - 2)])
