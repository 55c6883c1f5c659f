"""How metrics of a ranking's first items change where one gallery item is left out; it imports numba: import it late.

Where the item stood in a list of K, the item behind the list moves up. All functions take the first K + 1 items, or all
of a smaller gallery, and give the change of the value by leaving out each of the items that can change it: 0 for a
query without a value, NaN where the query then has none. tests/retrieval/test_item_effects.py measures again instead.
"""

import numpy as np
from numba import njit

from cml.array_types import Float32, Float64, Int64
from cml.retrieval.rank_correlation import Jit


def label_distance_changes(retrieved: Float32, ks: Int64) -> Float64:
    """Changes (R, max K, len(ks)) of the mean label distance by the items retrieved."""
    changes = np.zeros((len(retrieved), min(ks.max(), retrieved.shape[1]), len(ks)))
    _label_distance_changes(np.ascontiguousarray(retrieved), ks, changes)  # one form to compile for
    return changes


@njit(nogil=True, cache=True, error_model="numpy")
def _label_distance_changes(retrieved: Jit, ks: Jit, changes: Jit) -> None:
    length = retrieved.shape[1]
    totals, counts = np.zeros(length + 1), np.zeros(length + 1, np.int64)
    for r in range(len(retrieved)):
        row = retrieved[r]
        for i in range(length):
            finite = np.isfinite(row[i])
            totals[i + 1] = totals[i] + (np.float64(row[i]) if finite else 0.0)
            counts[i + 1] = counts[i] + finite
        for m in range(len(ks)):
            k = ks[m]
            count = counts[k]
            if count == 0:
                continue
            behind = np.float64(row[k]) if k < length else np.inf
            comes = np.isfinite(behind)
            for p in range(k):
                if not np.isfinite(row[p]):
                    if comes:
                        changes[r, p, m] = (totals[k] + behind) / (count + 1) - totals[k] / count
                elif comes:
                    changes[r, p, m] = (behind - row[p]) / count
                else:
                    changes[r, p, m] = (totals[k] - row[p]) / (count - 1) - totals[k] / count  # NaN without any


def ndcg_changes(
    gains: Float64,  # (R, K + 1) of the items retrieved; they stay as they are
    items: Int64,  # (R, K + 1) their positions in the gallery
    ideal: Float64,  # (R, K + 1) of the nearest by label
    nearest: Int64,  # (R, K + 1) their positions
    ks: Int64,
    gallery: int,  # G
) -> Float64:
    """Changes (R, 2 max K, len(ks)) of nDCG by the max K items retrieved and the max K nearest by label."""
    changes = np.zeros((len(items), 2 * ks.max(), len(ks)))
    discounts = 1 / np.log2(np.arange(2, ks.max() + 2))
    _ndcg_changes(gains, items, ideal, nearest, ks, discounts, np.full(gallery, -1), changes)
    return changes


@njit(nogil=True, cache=True)
def _sum_discounted_gains(gains: Jit, discounts: Jit, stay: Jit, move: Jit) -> None:
    """Sums of the first discounted gains: of each item where it is, and one place further up."""
    for i in range(len(discounts)):
        stay[i + 1] = stay[i] + discounts[i] * gains[i]
        move[i + 1] = move[i] + discounts[i] * (gains[i + 1] if i + 1 < len(gains) else 0.0)


@njit(nogil=True, cache=True, error_model="numpy")
def _ndcg_changes(
    gains: Jit, items: Jit, ideal: Jit, nearest: Jit, ks: Jit, discounts: Jit, place: Jit, changes: Jit
) -> None:
    depth = len(discounts)
    stay, move, best_stay, best_move = np.zeros((4, depth + 1))
    for r in range(len(items)):
        _sum_discounted_gains(gains[r], discounts, stay, move)
        _sum_discounted_gains(ideal[r], discounts, best_stay, best_move)
        for i in range(depth):
            place[nearest[r, i]] = i
        for p in range(depth):
            i = place[items[r, p]]
            place[items[r, p]] = -2 - i if i >= 0 else -1  # so that the second half leaves it out
            for m in range(len(ks)):
                k = ks[m]
                best = best_stay[k]
                is_best = 0 <= i < k
                if best > 0 and (p < k or is_best):
                    reached = stay[p] + move[k] - move[p] if p < k else stay[k]
                    if is_best:
                        best = best_stay[i] + best_move[k] - best_move[i]
                    changes[r, p, m] = (reached / best if best > 0 else np.nan) - stay[k] / best_stay[k]
        for i in range(depth):
            if place[nearest[r, i]] >= 0:
                for m in range(len(ks)):
                    k = ks[m]
                    if i < k and best_stay[k] > 0:
                        best = best_stay[i] + best_move[k] - best_move[i]
                        changes[r, depth + i, m] = (stay[k] / best if best > 0 else np.nan) - stay[k] / best_stay[k]
            place[nearest[r, i]] = -1


def hit_changes(
    retrieved: Float32, items: Int64, ideal: Float32, nearest: Int64, ks: Int64, neighbors: int, gallery: int
) -> Float64:
    """Changes (R, max K + neighbors, len(ks)) of hit@K by the max K items retrieved and the nearest by label.

    Without one of the true nearest, the next one is among them.
    """
    changes = np.zeros((len(items), ks.max() + neighbors, len(ks)))
    _hit_changes(retrieved, items, ideal, nearest, ks, neighbors, np.zeros(gallery, np.bool_), changes)
    return changes


@njit(nogil=True, cache=True)
def _hit_changes(
    retrieved: Jit, items: Jit, ideal: Jit, nearest: Jit, ks: Jit, neighbors: int, is_listed: Jit, changes: Jit
) -> None:
    depth, length = changes.shape[1] - neighbors, retrieved.shape[1]
    near, then_near = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.int64)  # counts of the first items
    for r in range(len(items)):
        row, border = retrieved[r], ideal[r, neighbors - 1]
        if np.isinf(ideal[r, 0]):
            continue
        then = ideal[r, neighbors] if neighbors < ideal.shape[1] else border
        is_only = ideal.shape[1] < 2 or np.isinf(ideal[r, 1])  # that can be compared
        for i in range(length):
            finite = np.isfinite(row[i])
            near[i + 1] = near[i] + (finite and row[i] <= border)
            then_near[i + 1] = then_near[i] + (finite and row[i] <= then)
        for p in range(depth):
            is_listed[items[r, p]] = True
            of_nearest = row[p] <= border
            counts = then_near if of_nearest else near
            for m in range(len(ks)):
                k = ks[m]
                left = counts[min(k + 1, length)] - (counts[p + 1] - counts[p]) if p < k else counts[k]
                changes[r, p, m] = (1.0 if left > 0 else 0.0) - (1.0 if near[k] > 0 else 0.0)
                if is_only and items[r, p] == nearest[r, 0]:
                    changes[r, p, m] = np.nan
        for i in range(neighbors):
            if not is_listed[nearest[r, i]]:
                for m in range(len(ks)):
                    k = ks[m]
                    changes[r, depth + i, m] = (1.0 if then_near[k] > 0 else 0.0) - (1.0 if near[k] > 0 else 0.0)
                    if is_only and i == 0:
                        changes[r, depth + i, m] = np.nan
        for p in range(depth):
            is_listed[items[r, p]] = False


def recall_changes(
    retrieved: Float32,  # (R, K + 1) label distances of the items retrieved
    items: Int64,  # (R, K + 1) their positions
    nearest: Int64,  # (R,) position of the nearest item by label
    relevant: Float64,  # (R,) number of relevant items
    ks: Int64,
    within: float,
    misses: bool,
) -> Float64:
    """Changes (R, max K + 1, len(ks)) of recall@K by the max K items retrieved and the nearest by label."""
    changes = np.zeros((len(items), ks.max() + 1, len(ks)))
    _recall_changes(retrieved, items, nearest, relevant, ks, within, misses, changes)
    return changes


@njit(nogil=True, cache=True)
def _recall_changes(
    retrieved: Jit, items: Jit, nearest: Jit, relevant: Jit, ks: Jit, within: float, misses: bool, changes: Jit
) -> None:
    depth, length = changes.shape[1] - 1, retrieved.shape[1]
    hits = np.zeros(length + 1, np.int64)  # counts of the first items
    for r in range(len(items)):
        if relevant[r] == 0 and not misses:
            continue
        is_last = relevant[r] == 1 and not misses
        for i in range(length):
            hits[i + 1] = hits[i] + (retrieved[r, i] <= within)
        is_listed = False
        for p in range(depth):
            is_listed |= items[r, p] == nearest[r]
            own = hits[p + 1] - hits[p]
            for m in range(len(ks)):
                k = ks[m]
                left = hits[min(k + 1, length)] - own if p < k else hits[k]
                changes[r, p, m] = (1.0 if left > 0 else 0.0) - (1.0 if hits[k] > 0 else 0.0)
                if is_last and own:
                    changes[r, p, m] = np.nan
        if is_last and not is_listed:
            changes[r, depth] = np.nan


def class_changes(
    retrieved: Float32, items: Int64, nearest: Int64, relevant: Float64, gallery: int
) -> tuple[Float64, Float64]:
    """Changes (R, 2 D, 1) of MAP@R and of R-precision by the first D items and the D nearest; D is the largest R."""
    depth = int(relevant.max(initial=0))
    changes = np.zeros((2, len(items), 2 * depth, 1))
    _class_changes(retrieved, items, nearest, relevant.astype(np.int64), np.zeros(gallery, np.bool_), changes)
    return changes[0], changes[1]


@njit(nogil=True, cache=True)
def _class_changes(retrieved: Jit, items: Jit, nearest: Jit, relevant: Jit, is_listed: Jit, changes: Jit) -> None:
    depth, length = changes.shape[2] // 2, retrieved.shape[1]
    count = np.zeros(length + 1, np.int64)  # of relevant items among the first
    stay, up, up_less = np.zeros(length + 1), np.zeros(length + 1), np.zeros(length + 1)  # sums of precisions
    for r in range(len(items)):
        size = relevant[r]
        if size == 0:
            continue
        for i in range(length):
            is_hit = retrieved[r, i] == 0
            count[i + 1] = count[i] + is_hit
            stay[i + 1] = stay[i] + is_hit * count[i + 1] / (i + 1)
            up[i + 1] = up[i] + is_hit * count[i + 1] / max(1, i)  # of an item a place further up
            up_less[i + 1] = up_less[i] + is_hit * (count[i + 1] - 1) / max(1, i)  # and one relevant item less
        precision, share = stay[size] / size, count[size] / size
        for p in range(size):
            is_listed[items[r, p]] = True
            if retrieved[r, p] != 0:
                end = min(size + 1, length)
                changes[0, r, p, 0] = (stay[p] + up[end] - up[p + 1]) / size - precision
                changes[1, r, p, 0] = count[end] / size - share
            elif size == 1:
                changes[:, r, p, 0] = np.nan
            else:
                changes[0, r, p, 0] = (stay[p] + up_less[size] - up_less[p + 1]) / (size - 1) - precision
                changes[1, r, p, 0] = (count[size] - 1) / (size - 1) - share
        for i in range(size):  # the relevant items that were not found
            if not is_listed[nearest[r, i]]:
                changes[0, r, depth + i, 0] = stay[size - 1] / (size - 1) - precision if size > 1 else np.nan
                changes[1, r, depth + i, 0] = count[size - 1] / (size - 1) - share if size > 1 else np.nan
        for p in range(size):
            is_listed[items[r, p]] = False
