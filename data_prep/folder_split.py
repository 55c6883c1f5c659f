"""The split of a user's own images into training, query and gallery."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cml.data_prep.group_split import split_by_group
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


def assign_roles(
    items: Sequence[Labelled], test_fraction: float, query_fraction: float, *, seed: int, classes: bool, grouped: bool
) -> dict[str, str]:
    """Give every image of a user's own a role.

    Args:
        items: The images. Their split column decides, if any of them has one; otherwise the split is random.
        test_fraction: Share of the images (of the classes, with ``classes``) that are not for training.
        query_fraction: Share of the test images that are queries.
        seed: Seed of the random split.
        classes: Whether labels are classes: whole classes are held out, and each test image is a query.
        grouped: Whether groups were given, whose images must not find each other.

    Returns:
        Names of images to "train", "query" or "gallery". If no image is "gallery", queries are searched among
        themselves.

    Raises:
        UserError: There are fewer than 3 classes, with ``classes`` and without a split column.
    """
    groups = {item.name: item.group for item in items}
    roles = {item.name: item.split or "train" for item in items}
    if all(item.split is None for item in items):
        if classes:
            unseen = deal_classes((item.label for item in items), test_fraction)
            held = {item.name for item in items if item.label in unseen}
        else:
            held = split_by_group(groups, test_fraction, seed=seed, salt="test")
        roles |= dict.fromkeys(held, "test")
    test = {name: groups[name] for name, role in roles.items() if role == "test"}
    own_gallery = "gallery" in roles.values()
    if query_fraction == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return roles | dict.fromkeys(test, "query")
    queries = split_by_group(test, query_fraction, seed=seed, salt="query") if test else set()
    return roles | {name: "query" if name in queries else "gallery" for name in test}


def deal_classes(classes: Iterable[str], test_fraction: float) -> set[str]:
    """Choose the classes that are for testing alone: those whose names have the lowest hashes.

    Args:
        classes: The class of each image.
        test_fraction: Share of the classes to choose, at least one and all but two.

    Returns:
        The classes.

    Raises:
        UserError: There are fewer than 3 classes.
    """
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) < 3:  # 2 to train on and 1 that is never seen
        got = ", ".join(map(repr, sorted(known))) or "none"
        mend = "with fewer, name a split_column that says train, query and gallery"
        why = "as testing takes classes that were not trained on"
        raise UserError(f"There should be at least 3 classes, {why}. Got {got}; {mend}.")
    return set(known[: min(max(1, math.floor(test_fraction * len(known) + 0.5)), len(known) - 2)])
