"""How an index is searched: the nearest items that a question asks for, exactly or by faiss, as hits."""

import functools
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.array_types import Bools, Float32
from cml.errors import UserError
from cml.searching.approximate import Neighbors
from cml.searching.hit import Hit
from cml.searching.index_file import count_items, find_row, select_where
from cml.searching.index_rows import HeldRows, describe_hit, read_items
from cml.searching.index_state import IndexState

Found = tuple[list[list[int]], list[list[float]]]  # for each query places of items, nearest first, and their distances
_FOUND, _FIRST = 10, 64  # items that are found by default; that are looked for at first within a distance


@dataclass(frozen=True)
class Question:
    """What a search asks for beside its queries, as ``Index.search`` explains it."""

    k: int | None
    within: float | None
    where: str | None
    values: Sequence[Any]
    exclude: Sequence[str]
    exact: bool


def search_index(
    db: sqlite3.Connection,
    state: IndexState,
    rows: Float32,  # (Q, D)
    asked: Question,
    folder: object,  # of the index, for messages
) -> list[list[Hit]]:
    """The hits of each query, nearest first."""
    within = asked.within
    if within is not None and not within >= 0:
        return [[] for _ in rows]
    while True:
        held, covers = state.refresh(db, exact=asked.exact or asked.where is not None)
        most = len(held.gallery) if covers is None else count_items(db)
        if not most:
            raise UserError(f"The index {folder} is empty: add items to it before a search.")
        wanted = _check_k(asked.k, most, most if within is not None else min(_FOUND, most))
        among = (
            None if asked.where is None else held.at(np.array(select_where(db, asked.where, asked.values), np.int64))
        )
        hidden = [row for row in (find_row(db, item_id) for item_id in asked.exclude) if row is not None]
        take = min(wanted + len(hidden), most if among is None else int(np.count_nonzero(among)))
        if not take or not len(rows):
            return [[] for _ in rows]
        look = functools.partial(_find_nearest, db, held, covers, rows, among)
        found, far = look(take) if within is None else _look_within(look, within, take)
        items: Any = held.items
        if covers is None:
            hidden = np.flatnonzero(held.at(np.array(hidden, np.int64))).tolist() if hidden else []
        else:
            items = read_items(db, list({number for row in found for number in row}))
            if any(number not in items for row in found for number in row):
                continue  # another process removed one meanwhile
        if within is not None or hidden:
            kept = [
                [one for one in zip(*both, strict=True) if one[0] not in hidden and _is_within(one[1], within)]
                for both in zip(found, far, strict=True)
            ]
            found = [[place for place, _ in row[:wanted]] for row in kept]
            far = [[distance for _, distance in row[:wanted]] for row in kept]
        return [
            [describe_hit(items[place], distance) for place, distance in zip(*both, strict=True)]
            for both in zip(found, far, strict=True)
        ]


def _is_within(distance: float, within: float | None) -> bool:
    return within is None or distance <= within


def _check_k(k: int | None, most: int, default: int) -> int:
    """How many items each query is to find."""
    if k is None:
        return default
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= most:
        raise UserError(f"'k' must be 1 or more and at most the number of items, {most}. Got {k!r} instead.")
    return int(k)


def _find_nearest(
    db: sqlite3.Connection,
    held: HeldRows,
    covers: Neighbors | None,
    rows: Float32,  # (Q, D)
    among: Bools | None,  # (N,)
    count: int,
) -> Found:
    """The nearest items of each query, exactly or by faiss."""
    if covers is not None:
        return covers.search(db, held, rows, count)
    distances, places = held.gallery.search(rows, count, among)
    return places.tolist(), distances.tolist()


def _look_within(look: Callable[[int], Found], within: float, most: int) -> Found:
    """The nearest items of each query, as many as hold all within a distance: few at first."""
    count = min(_FIRST, most)
    while True:
        found, far = look(count)
        if count == most or all(len(row) < count or row[-1] > within for row in far):
            return found, far
        count = min(4 * count, most)
