"""How tau-b, rho and H-AP of a ranking change where one gallery item is left out; it imports numba: import it late.

Every item's effect follows from sums over one sorted order, in O(G log G) for all items of a ranking together. The
formulas with ties are checked against measuring again without the item, in tests/retrieval/test_item_effects.py.
"""

import numpy as np
from numba import njit

from cml.array_types import Float64, Floating, Int32
from cml.retrieval.rank_correlation import BUCKETS, ONE, Jit, as_bits, order_items


def rank_effects(scores: Floating, label_ranks: Int32, gains: Float64) -> Float64:
    """Change of tau-b, rho and H-AP of each ranking by leaving out each item: (R, G, 3).

    The gains of H-AP stay those of the whole gallery. 0 for an item that counts nowhere; NaN where the metric then has
    no value. Arguments as ``cml.retrieval.rank_correlation.rank_correlations`` takes them.
    """
    effects = np.zeros((*scores.shape, 3))
    _all_effects(as_bits(scores), label_ranks, gains, effects)
    return effects


@njit(nogil=True, cache=True)
def _all_effects(bits: Jit, label_ranks: Jit, gains: Jit, effects: Jit) -> None:
    """Effects of the items of all rankings, whose items are sorted by score and then by label rank."""
    gallery = bits.shape[1]
    keys, spare_keys = np.empty(gallery, np.uint64), np.empty(gallery, np.uint64)
    columns, spare_columns = np.empty(gallery, np.int32), np.empty(gallery, np.int32)
    places, below = np.empty(BUCKETS, np.int32), np.empty(gallery + 1, np.int32)
    ranks, start_of, stop_of = np.empty(gallery, np.int64), np.empty(gallery, np.int64), np.empty(gallery, np.int64)
    worth, moved, discordant = np.empty(gallery), np.empty(gallery), np.empty(gallery)
    nearer, later = np.empty(gallery), np.empty(gallery)
    tree, sums, of_ranks = np.empty((4 * gallery + 4, 4)), np.empty((gallery + 1, 2)), np.empty((gallery + 1, 2))
    for r in range(len(bits)):
        size, _ = order_items(bits[r], label_ranks[r], keys, columns, spare_keys, spare_columns, places, below)
        if size == 0:
            continue
        for i in range(size):
            ranks[i], worth[i] = label_ranks[r, columns[i]], gains[r, columns[i]]
        _find_ties(keys, size, start_of, stop_of)
        _mean_inverse_ranks(start_of, stop_of, size, moved)
        _pair_sums(ranks, worth, moved, below, size, tree, of_ranks, discordant, nearer, later)
        out = effects[r]
        _tau_rho_effects(ranks, columns, start_of, stop_of, below, discordant, size, sums, of_ranks, out)
        _h_ap_effects(worth, columns, start_of, stop_of, moved, nearer, later, size, out)


@njit(nogil=True, cache=True)
def _find_ties(keys: Jit, size: int, start_of: Jit, stop_of: Jit) -> None:
    """First place, and place after the last, of the items that share each item's score."""
    for i in range(size):
        start_of[i] = start_of[i - 1] if i > 0 and keys[i] == keys[i - 1] else i
    for i in range(size - 1, -1, -1):
        stop_of[i] = stop_of[i + 1] if i + 1 < size and keys[i] == keys[i + 1] else i + 1


@njit(nogil=True, cache=True)
def _mean_inverse_ranks(start_of: Jit, stop_of: Jit, size: int, means: Jit) -> None:
    """Mean of 1 / rank over the places of each item's tied range, one item before it left out; 0 for the first."""
    for i in range(size):
        start, stop = start_of[i] - 1, stop_of[i] - 1
        if i > start_of[i]:
            means[i] = means[i - 1]
            continue
        means[i] = 0.0
        if start >= 0:
            for rank in range(start + 1, stop + 1):
                means[i] += 1 / rank / (stop - start)


@njit(nogil=True, cache=True)
def _tied_slope(start: int, stop: int) -> float:
    """Mean over places of (share of the other tied items before it) / rank."""
    slope = 0.0
    for rank in range(start + 1, stop + 1):
        slope += (rank - start - 1) / rank
    return slope / max(1, (stop - start) * (stop - start - 1))


@njit(nogil=True, cache=True)
def _pair_sums(
    ranks: Jit,
    gains: Jit,
    weights: Jit,
    below: Jit,
    size: int,
    tree: Jit,
    of_ranks: Jit,
    discordant: Jit,
    nearer: Jit,
    later: Jit,
) -> None:
    """Of each item: its discordant pairs; sum of min(g, g') over items before; weighted sum of it over items after.

    A tree over the label ranks holds number, weights, gains and weighted gains of the items before, as in
    ``rank_correlation``. What is after an item follows from the sums over all.
    """
    highest = 0
    for i in range(size):
        highest = max(highest, ranks[i])
    levels = 1
    while (1 << levels) <= highest:
        levels += 1
    leaf = 1 << levels
    tree[: 2 * leaf] = 0
    of_ranks[: highest + 1] = 0  # weights and weighted gains of all items, by label rank
    for i in range(size):
        of_ranks[ranks[i], 0] += weights[i]
        of_ranks[ranks[i], 1] += weights[i] * gains[i]
    for rank in range(1, highest + 1):
        of_ranks[rank, 0] += of_ranks[rank - 1, 0]
        of_ranks[rank, 1] += of_ranks[rank - 1, 1]
    all_weighted = of_ranks[highest, 1]
    gains_before, weighted_before = 0.0, 0.0
    for i in range(size):
        rank, gain, weight = ranks[i], gains[i], weights[i]
        weighted = weight * gain
        node = np.uint64(leaf + rank)
        equal, equal_weight = tree[node, 0], tree[node, 1]
        near, near_weight, near_gains, near_weighted = 0.0, 0.0, 0.0, 0.0
        for _ in range(levels):
            left = (node ^ ONE) * (node & ONE)  # node 0, which holds nothing, beside a node that is left itself
            near += tree[left, 0]
            near_weight += tree[left, 1]
            near_gains += tree[left, 2]
            near_weighted += tree[left, 3]
            tree[node, 0] += 1
            tree[node, 1] += weight
            tree[node, 2] += gain
            tree[node, 3] += weighted
            node >>= ONE
        discordant[i] = i - near - equal + below[rank] - near
        nearer[i] = gain * near + gains_before - near_gains
        not_farther = of_ranks[rank, 0] - near_weight - equal_weight - weight
        farther = all_weighted - of_ranks[rank, 1] - (weighted_before - near_weighted - equal_weight * gain)
        later[i] = gain * not_farther + farther
        gains_before += gain
        weighted_before += weighted


@njit(nogil=True, cache=True, error_model="numpy")
def _tau_rho_effects(
    ranks: Jit,
    columns: Jit,
    start_of: Jit,
    stop_of: Jit,
    below: Jit,
    discordant: Jit,
    size: int,
    by_score: Jit,
    by_label: Jit,
    out: Jit,
) -> None:
    """Leaving out g moves the centred rank of every other item h by -sign(h - g) / 2 on each side.

    ``by_score`` and ``by_label`` are overwritten: sums of the centred ranks of either side over the items of lower
    score, and of lower label rank. Those over all items are 0.
    """
    middle = (size - 1) / 2
    highest = 0
    by_score[0] = 0
    for i in range(size):
        highest = max(highest, ranks[i])
    by_label[: highest + 2] = 0
    product = score_square = label_square = score_ties = label_ties = 0.0
    for i in range(size):
        rank = ranks[i]
        a, b = (start_of[i] + stop_of[i] - 1) / 2 - middle, (below[rank] + below[rank + 1] - 1) / 2 - middle
        by_score[i + 1, 0], by_score[i + 1, 1] = by_score[i, 0] + a, by_score[i, 1] + b
        by_label[rank + 1, 0] += a
        by_label[rank + 1, 1] += b
        product += a * b
        score_square += a * a
        label_square += b * b
        score_ties += (stop_of[i] - start_of[i] - 1) / 2
        label_ties += (below[rank + 1] - below[rank] - 1) / 2
    for rank in range(highest + 1):
        by_label[rank + 1, 0] += by_label[rank, 0]
        by_label[rank + 1, 1] += by_label[rank, 1]
    pairs, all_discordant, both_ties = size * (size - 1) / 2, 0.0, 0.0
    equal = 0
    for i in range(size):  # items of equal score and label are neighbours in this order
        equal = equal + 1 if i > start_of[i] and ranks[i] == ranks[i - 1] else 0
        both_ties += equal
        all_discordant += discordant[i] / 2
    if pairs - score_ties < 0.5 or pairs - label_ties < 0.5:  # one side is constant anyway
        return
    total = pairs - score_ties - label_ties + both_ties - 2 * all_discordant  # concordant less discordant pairs
    tau = total / np.sqrt(pairs - score_ties) / np.sqrt(pairs - label_ties)
    rho = product / np.sqrt(score_square) / np.sqrt(label_square)
    fewer = pairs - (size - 1)
    first = 0
    while first < size:
        after = first + 1
        while after < stop_of[first] and ranks[after] == ranks[first]:
            after += 1
        start, stop, rank = start_of[first], stop_of[first], ranks[first]
        score_tied, label_tied = stop - start, below[rank + 1] - below[rank]
        score_pairs, label_pairs = fewer - score_ties + score_tied - 1, fewer - label_ties + label_tied - 1
        a, b = (start + stop - 1) / 2 - middle, (below[rank] + below[rank + 1] - 1) / 2 - middle
        score_rest = score_square - a * a + by_score[start, 0] + by_score[stop, 0] + (size - score_tied) / 4
        label_rest = label_square - b * b + by_label[rank, 1] + by_label[rank + 1, 1] + (size - label_tied) / 4
        by_both = by_label[rank, 0] + by_label[rank + 1, 0] + by_score[start, 1] + by_score[stop, 1]
        for i in range(first, after):
            surplus = size - score_tied - label_tied + (after - first) - 2 * discordant[i]  # the item's own part
            rest = product - a * b + by_both / 2 + surplus / 4
            if score_pairs < 0.5 or label_pairs < 0.5:  # one side is constant without it
                out[columns[i], 0] = out[columns[i], 1] = np.nan
            else:
                out[columns[i], 0] = (total - surplus) / np.sqrt(score_pairs) / np.sqrt(label_pairs) - tau
                out[columns[i], 1] = rest / np.sqrt(score_rest) / np.sqrt(label_rest) - rho
        first = after


@njit(nogil=True, cache=True, error_model="numpy")
def _h_ap_effects(
    gains: Jit, columns: Jit, start_of: Jit, stop_of: Jit, moved: Jit, nearer: Jit, later: Jit, size: int, out: Jit
) -> None:
    """Items after the one that is left out move up a place; those tied with it share their places among fewer.

    An item adds W (g + A) + S B, with A the sum of min(g, g') over items before its tied range, B that over the others
    of it, W the mean of 1 / rank and S the slope over the range (``_tied_slope``).
    """
    whole = 0.0
    for i in range(size):
        whole += gains[i]
    if not whole > 0:
        return
    tied_sum = np.empty(size)  # B
    later_tied = np.empty(size)  # of items of the range behind it, whose gains are not greater
    start: Jit = 0
    while start < size:
        behind = 0.0
        for i in range(stop_of[start] - 1, start - 1, -1):
            later_tied[i] = behind
            tied_sum[i] = behind + (i - start) * gains[i]
            behind += gains[i]
        start = stop_of[start]
    before, after = 0.0, 0.0  # what items before the range add, and those after it
    parts = np.zeros(size)  # what each item adds once one before its range is left out, but for the lost pair
    slope = 0.0
    for i in range(size):
        if start_of[i] > 0:
            if i == start_of[i]:
                slope = _tied_slope(start_of[i] - 1, stop_of[i] - 1)
            strictly = nearer[i] - (i - start_of[i]) * gains[i]
            parts[i] = moved[i] * (gains[i] + strictly) + slope * tied_sum[i]
            after += parts[i]
    results = np.empty(size)
    start = np.int64(0)  # of this type from the start, so that callees are compiled once
    while start < size:
        stop = stop_of[start]
        weight, slope = 0.0, _tied_slope(start, stop)
        fewer_weight, fewer_slope = 0.0, _tied_slope(start, stop - 1)
        for rank in range(start + 1, stop + 1):
            weight += 1 / rank / (stop - start)
            if rank < stop:
                fewer_weight += 1 / rank / (stop - start - 1)
        own, rest, pairs = 0.0, 0.0, 0.0
        for i in range(start, stop):
            strictly = gains[i] + nearer[i] - (i - start) * gains[i]
            own += weight * strictly + slope * tied_sum[i]
            rest += strictly
            pairs += tied_sum[i]
            after -= parts[i]
        for i in range(start, stop):
            strictly = gains[i] + nearer[i] - (i - start) * gains[i]
            tied = fewer_weight * (rest - strictly) + fewer_slope * (pairs - 2 * tied_sum[i])
            lost = later[i] - moved[i] * later_tied[i]  # min(g, g') with items behind the range
            results[i] = before + tied + after - lost
        before += own
        start = stop
    for i in range(size):
        left = whole - gains[i]
        out[columns[i], 2] = results[i] / left - before / whole if left > 1e-12 * whole else np.nan
