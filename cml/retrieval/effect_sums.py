"""Sums over queries of how much each gallery item changes their values; it imports numba: import it late."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from cml.array_types import Bools, Float32, Float64, Int64
from cml.retrieval.item_influences import Effects, ItemInfluences, mean_of_present
from cml.retrieval.item_units import ItemUnits
from cml.retrieval.rank_correlation import Jit

if TYPE_CHECKING:
    from cml.processes.ranks import Ranks


class EffectSums:
    """Effects of gallery items on the columns of all rows, added up query by query in their order.

    So the sums do not depend on how queries are cut into blocks.
    """

    def __init__(self, units: ItemUnits, rows: int, columns: int) -> None:
        self._units = units
        # one array, so that several processes merge it at once: of the gallery's units; of pairs with signs, which
        # belong to a unit with queries; and without signs, of the unit's queries
        self.merged = np.zeros((rows, units.gallery + 2 * units.queries, columns))
        self.chance = np.zeros(units.gallery)  # the effects on the mean label distance of all items
        self._lost: list[tuple[int, Int64, Int64, Int64]] = []  # row, queries, items, columns of undefined values

    def add(
        self,
        row: int,
        column: int,
        queries: Int64,  # (R,) numbers of the queries
        effects: Effects,
        factor: float = 1.0,
    ) -> None:
        """Add the effects on some columns of R queries."""
        units, sums = self._units, self.merged[row]
        items = np.ascontiguousarray(effects.items)  # one form to compile for
        changes = np.ascontiguousarray(effects.changes)
        part = sums[:, column : column + changes.shape[2]]
        query, item = units.of_queries[queries], units.of_gallery
        lost = _add(items, changes, query, item, factor, units.are_joint, units.queries, part)
        if lost:
            at, place, which = (index.astype(np.int64) for index in np.nonzero(np.isnan(changes)))
            self._lost.append((row, queries[at], items[at, place], which + column))

    def add_chance(self, queries: Int64, label_distances: Float32, chance: Float64) -> None:
        """Add the effects on the mean label distance of all items that can be compared; label distances are (R, G)."""
        units = self._units
        _add_chance(label_distances, chance, queries, units.of_queries, units.of_gallery, units.are_joint, self.chance)

    def merge(self, values: Float64, ranks: Ranks) -> None:
        """Add up the sums of several processes; values (rows, Q, columns) are those of all."""
        self._replace_lost(values, mean_of_present(values.transpose(0, 2, 1)))
        self.merged = ranks.all_reduce_array(self.merged)
        self.chance = ranks.all_reduce_array(self.chance)

    def influences(
        self,
        values: Float64,  # (rows, Q, columns) values of the queries
        is_ranked: Bools,  # (columns, gallery units) which of the gallery's units the queries rank
    ) -> ItemInfluences:
        """The influences of all units on the means of values."""
        units = self._units
        means = mean_of_present(values.transpose(0, 2, 1))  # (rows, columns)
        self._replace_lost(values, means)
        sums = self.merged.transpose(0, 2, 1)  # (rows, columns, ..)
        of_items, signed, total = np.split(sums, [units.gallery, units.gallery + units.queries], axis=-1)
        if units.are_joint:  # a unit is in the pairs of its queries and in those of its gallery items
            total = total + of_items
        of_items[-1, 0] = self.chance
        return make_influences(units, values.transpose(0, 2, 1), means, of_items, signed, total, is_ranked)

    def _replace_lost(self, values: Float64, means: Float64) -> None:
        """A query that has no value without an item is left out of the mean without it."""
        units = self._units
        for row, queries, items, columns in self._lost:
            change = means[row, columns] - values[row, queries, columns]
            to, of = units.of_gallery[items], units.of_queries[queries]
            first = np.zeros((1, 1), np.int64)
            for number, column in enumerate(columns.tolist()):
                part, one = self.merged[row][:, column : column + 1], change[number].reshape(1, 1, 1)
                _add(first, one, of[[number]], to[[number]], 1.0, units.are_joint, units.queries, part)
        self._lost = []


def make_influences(
    units: ItemUnits,
    values: Float64,  # (..., Q)
    means: Float64,  # (...)
    of_items: Float64,  # (..., gallery units) the sum over queries of the change without each unit
    signed: Float64,  # (..., units with queries) sums of changes with signs, see ``ItemInfluences``
    total: Float64,  # (..., units with queries) the same without signs
    is_ranked: Bools,  # (..., gallery units), which broadcasts, the units that the queries rank
) -> ItemInfluences:
    """Influences of units on means (...) of values (..., Q)."""
    present = np.isfinite(values)
    counts = np.maximum(present.sum(axis=-1), 1)[..., None]
    rest = units.sum_queries(np.where(present, values - means[..., None], 0)) / counts
    known = (units.sum_queries(present.astype(np.float64)) > 0).sum(axis=-1)
    signed, total = signed / counts, total / counts
    size = rest.shape[-1]
    ranked = np.broadcast_to(is_ranked.sum(axis=-1), means.shape)
    centre = (of_items.sum(axis=-1) / np.maximum(ranked, 1))[..., None]
    centred = of_items - centre  # as large as the gallery for each metric: changed in place
    centred[np.broadcast_to(~is_ranked, centred.shape)] = 0
    centred /= counts
    first, second = size * rest, np.zeros((*means.shape, 0))
    if units.are_joint:
        first = first - size * centred
        ranked = ranked - 1
    else:
        gallery = of_items.shape[-1]
        of_sample = np.sqrt(gallery * max(1, gallery - 1) * np.maximum(ranked - 1, 0) / np.maximum(ranked, 1))
        second = np.multiply(centred, -of_sample[..., None], out=centred)
    return ItemInfluences(means, first, second, size * signed, size * total, known, ranked)


@njit(nogil=True, cache=True)
def _sign(first: int, second: int) -> float:
    """A fixed random sign of two numbers (the finaliser of splitmix64)."""
    bits = np.uint64(first) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(second) * np.uint64(0xD1B54A32D192ED03)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return 1.0 if (bits >> np.uint64(40)) & np.uint64(1) else -1.0


@njit(nogil=True, cache=True)
def _place_pair(query: int, item: int, are_joint: bool) -> tuple[int, float]:
    """The unit that keeps what two units do together, and the sign: where both are of one kind, in either order."""
    if not are_joint:
        return query, _sign(query, item)
    low, high = min(query, item), max(query, item)
    return (high if (low + high) & 1 else low), _sign(low, high)  # so that each keeps half of its pairs


@njit(nogil=True, cache=True)
def _add(
    items: Jit, changes: Jit, of_queries: Jit, of_gallery: Jit, factor: float, are_joint: bool, count: int, sums: Jit
) -> int:
    """Add changes (R, W, M) to sums (gallery units + 2 count, M); gives how many are NaN, which are left out."""
    lost = 0
    gallery = len(sums) - 2 * count
    for r in range(len(items)):
        query = of_queries[r]
        of_query = sums[gallery + count + query]
        for w in range(items.shape[1]):
            item = of_gallery[items[r, w]]
            if are_joint and item == query:
                continue  # which goes with the query
            keeper, sign = _place_pair(query, item, are_joint)
            change, of_item, of_pair = changes[r, w], sums[item], sums[gallery + keeper]
            for m in range(len(change)):
                value = factor * change[m]
                if np.isnan(value):
                    lost += 1
                    value = 0.0
                of_item[m] += value
                of_pair[m] += sign * value
                of_query[m] += value
    return lost


@njit(nogil=True, cache=True, error_model="numpy")
def _add_chance(
    distances: Jit, chance: Jit, queries: Jit, of_queries: Jit, of_gallery: Jit, are_joint: bool, sums: Jit
) -> None:
    for r in range(len(distances)):
        unit = of_queries[queries[r]] if are_joint else -1
        count = 0
        for j in range(distances.shape[1]):
            count += np.isfinite(distances[r, j])
        if count < 2:
            continue
        for j in range(distances.shape[1]):
            if np.isfinite(distances[r, j]) and of_gallery[j] != unit:
                sums[of_gallery[j]] += (chance[r] - distances[r, j]) / (count - 1)
