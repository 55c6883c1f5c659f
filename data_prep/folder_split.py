"""The split of a user's own images, or rows of a table, into training, query and gallery."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cml.data_prep.class_protocol import protocol
from cml.data_prep.group_split import split_by_group
from cml.data_prep.row_files import Row, cell, say_once
from cml.errors import DataError, UserError


@dataclass(slots=True)
class Labelled:
    """An image, or another item, and what the rows say of it."""

    item_id: str  # the image's name; with a number, if it shows more people than one
    name: str  # the image's path, relative to the folder of the images; the id of another item
    where: str  # "FILE:LINE" of its first row
    split: str | None  # what the split column says, or None
    group: str  # what the group column says, or the image's name
    label: Any  # the label; for captions the list that further rows add to; for masks the file
    extra: dict[str, Any] = field(default_factory=dict)  # further columns to keep
    picture: Path | None = None  # of an item that is a vector, to show
    listed: str = ""  # the name as the row has it, where the image lies elsewhere
    further: Sequence[Any] = ()  # the labels of its further rows, as of other raters


FEW = 200  # test items; of fewer, each is a query that is searched among all others


_SPLITS = {role: role for role in ("train", "query", "gallery", "test")} | {"val": "test", "validation": "test"}


def read_split(
    row: Row,
    column: str | None,  # name of the split column; None for none
    where: str,
    printed: set[str],  # how the file was understood, which is printed once; see ``say_once``
) -> str | None:  # "train", "query", "gallery" or "test"; None without a split column
    """Read the cell of a split column."""
    if column is None:
        return None
    value = cell(row, column, where, option="--split-column")
    split = _SPLITS.get(value.strip().lower()) if isinstance(value, str) else None
    if split is None:
        known = ", ".join(_SPLITS)
        raise DataError(f"{where}: {column} should be one of {known}. Got {value!r} instead.")
    if value != split:
        say_once(printed, f"{where.rpartition(':')[0]}: {column} {value!r} is taken for {split!r}.")
    return split


def describe_split(roles: Mapping[str, str], *, classes: bool) -> dict[str, Any]:
    """Describe how queries are searched, by the roles that there are."""
    own_gallery = "gallery" in roles.values()
    if classes:
        searched = Counter(roles.values())["gallery" if own_gallery else "query"]
        return protocol(*([k for k in (1, 2, 4, 8) if k < searched] or [1]), own_gallery=own_gallery)
    return {} if own_gallery else {"gallery": "queries"}


def assign_roles(
    # the images. Their split column decides, if any of them has one; otherwise the split is random
    items: Sequence[Labelled],
    test_fraction: float,  # share of the images (of the classes, with ``classes``) that are not for training
    query_fraction: float,
    *,
    seed: int,
    classes: bool,
    grouped: bool,
) -> dict[str, str]:
    """Give every image of a user's own a role."""
    groups, held = {item.name: item.group for item in items}, set[str]()
    if all(item.split is None for item in items):
        if classes:
            unseen = deal_classes((item.label for item in items), test_fraction)
            held = {item.name for item in items if item.label in unseen}
        else:
            held = split_by_group(groups, test_fraction, seed=seed, salt="test")
    roles = {item.name: "test" if item.name in held else item.split or "train" for item in items}
    test = {name: groups[name] for name, role in roles.items() if role == "test"}
    own_gallery = "gallery" in roles.values()
    if query_fraction == 1 or (not own_gallery and (classes or (len(test) < FEW and not grouped))):
        return roles | dict.fromkeys(test, "query")
    queries = split_by_group(test, query_fraction, seed=seed, salt="query") if test else set()
    roles.update((name, "query" if name in queries else "gallery") for name in test)
    return roles


def deal_classes(
    classes: Iterable[str],
    test_fraction: float,  # share of the classes to choose, at least one
    *,
    trained: int = 2,
) -> set[str]:
    """Choose the classes that are for testing alone: those whose names have the lowest hashes."""
    known = sorted(set(classes), key=lambda name: hashlib.sha256(name.encode()).digest())
    if len(known) <= trained:
        got = ", ".join(map(repr, sorted(known))) or "none"
        mend = "with fewer, name a split_column that says train, query and gallery"
        why = "as testing takes classes that were not trained on"
        raise UserError(f"There should be at least {trained + 1} classes, {why}. Got {got}; {mend}.")
    return set(known[: min(max(1, math.floor(test_fraction * len(known) + 0.5)), len(known) - trained)])
