"""The split of a user's own images into training, query and gallery."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cml.data_prep.group_split import group_split
from cml.errors import UserError


@dataclass
class Labelled:
    """An image and what the rows say of it."""

    item_id: str  # the image's name; with a number, if it shows more people than one
    name: str  # the image's path, relative to the folder of the images
    where: str  # "FILE:LINE" of its first row
    split: str | None  # what the split column says, or None
    group: str  # what the group column says, or the image's name
    label: Any  # the label; for captions the list that further rows add to; for masks the file


FEW = 200  # test items; of fewer, each is a query that is searched among all others


def roles(
    items: Sequence[Labelled], test_fraction: float, query_fraction: float, *, seed: int, classes: bool, grouped: bool
) -> dict[str, str]:
    """Train, query or gallery for every item; where nothing is gallery, queries are searched among themselves.

    ``grouped``: groups were given, whose items must not find each other.
    """
    groups = {one.name: one.group for one in items}
    found = {one.name: one.split or "train" for one in items}
    if all(one.split is None for one in items):
        if classes:
            unseen = deal_classes((one.label for one in items), test_fraction)
            held = {one.name for one in items if one.label in unseen}
        else:
            held = group_split(groups, test_fraction, seed=seed, salt="test")
        found |= dict.fromkeys(held, "test")
    test = {name: groups[name] for name, role in found.items() if role == "test"}
    own_gallery = "gallery" in found.values()
    if query_fraction == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return found | dict.fromkeys(test, "query")
    queries = group_split(test, query_fraction, seed=seed, salt="query") if test else set()
    return found | {name: "query" if name in queries else "gallery" for name in test}


def deal_classes(classes: Iterable[str], test_fraction: float) -> set[str]:
    """The classes that are for testing alone: those of the least hashes of their names, one at least."""
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) < 3:  # 2 to train on and 1 that is never seen
        got = ", ".join(map(repr, sorted(known))) or "none"
        mend = "with fewer, name a split_column that says train, query and gallery"
        why = "as testing takes classes that were not trained on"
        raise UserError(f"There should be at least 3 classes, {why}. Got {got}; {mend}.")
    return set(known[: min(max(1, math.floor(test_fraction * len(known) + 0.5)), len(known) - 2)])
