"""Labels that hold the judgements of their items: packed tables, a row a judgement, and which items these are among.

A label names its own item and the items that it was judged with, by their numbers, and so needs no other file: a list
of texts, the first of which is the item's number. What the other texts hold depends on the kind of judgement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64, Int64
from cml.distances.labels import LabelError, Labels, short
from cml.distances.sparse_distances import LabelRows, expand_runs

LARGEST_ITEM = 2**31 - 1
ReadRow = Callable[[str], tuple[float, ...]]


class Judgements(NamedTuple):
    """The judgements of N labels."""

    owners: Int64  # (J,) position of the label that each belongs to
    table: Float64  # (J, C) numbers of each


def pack_judgements(
    labels: Sequence[Any],
    columns: int,
    read: ReadRow,  # reads a text as a judgement; ``ValueError`` if it is none
    form: str,
) -> Labels:  # arrays ``items`` (N,) int64, the number of each item, and ``judgements`` (N,) of tables (J, C) float64
    """Check and pack labels."""
    items = np.empty(len(labels), np.int64)
    tables = np.empty(len(labels), object)
    for position, label in enumerate(labels):
        try:
            if not isinstance(label, list | tuple) or not label:
                raise ValueError
            items[position] = read_item(label[0])
            rows = [read(text) for text in label[1:]]
        except (ValueError, AttributeError, TypeError):
            fault = f"should be a list of texts such as {form}. Got {short(label)} instead."
            raise LabelError(position, fault) from None
        tables[position] = np.array(rows, np.float64).reshape(len(rows), columns)
    return Labels({"items": items, "judgements": tables})


def read_item(text: str) -> int:
    """Read the number of an item."""
    if not text.isdecimal() or int(text) > LARGEST_ITEM:
        raise ValueError(f"{text!r} is no number of an item")
    return int(text)


def join_judgements(labels: Labels) -> Judgements:
    """Join the judgements of labels to one table."""
    return join_tables(labels.arrays["judgements"])


def join_tables(tables: NDArray[np.object_]) -> Judgements:  # tables (N,)
    """Join one kind of tables of labels."""
    counts = np.fromiter(map(len, tables), np.int64, len(tables))
    return Judgements(np.repeat(np.arange(len(tables)), counts), np.concatenate(tables))


def match_items(
    items: Float64,  # (J,) numbers of items
    labels: Labels,  # N packed labels; several may be of one item
) -> tuple[Int64, Int64]:
    """Find the labels of some items.

    Returns (M,) which of the ``items``, and (M,) the position of a label of it; nothing for items that have none.
    """
    rows = LabelRows(labels.arrays["items"])
    which, places = expand_runs(*rows.find(items.astype(np.int64)))
    return which, rows.order[places]


def same_items(a: Labels, b: Labels) -> Bools:
    """Which labels of two sides are of one item, (A, B)."""
    equal: Bools = a.arrays["items"][:, None] == b.arrays["items"]
    return equal
