"""How tau-b, rho and H-AP of a ranking change where one gallery item is left out; it imports numba: import it late.

Every item's effect follows from sums over one sorted order, in O(G log G) for all items of a ranking together. The
formulas with ties are checked against measuring again without the item, in tests/retrieval/test_item_effects.py.
"""

import numpy as np
from numba import njit

from cml.array_types import Float64, Floating, Int32
from cml.retrieval.rank_correlation import _BUCKETS, _PASSES, Jit, _bits, _order_bits, _sort


def rank_effects(scores: Floating, label_ranks: Int32, gains: Float64) -> Float64:
    """Change of tau-b, rho and H-AP of each ranking by leaving out each item: (R, G, 3).

    The gains of H-AP stay those of the whole gallery. 0 for an item that counts nowhere; NaN where the metric then has
    no value. Arguments as ``cml.retrieval.rank_correlation.rank_correlations`` takes them.
    """
    effects = np.zeros((*scores.shape, 3))
    _all_effects(_bits(scores), label_ranks, gains, effects)
    return effects


@njit(nogil=True, cache=True)
def _all_effects(bits: Jit, label_ranks: Jit, gains: Jit, effects: Jit) -> None:
    gallery = bits.shape[1]
    keys, spare_keys = np.empty(gallery, np.uint64), np.empty(gallery, np.uint64)
    columns, spare_columns = np.empty(gallery, np.int32), np.empty(gallery, np.int32)
    counts = np.empty((_PASSES, _BUCKETS), np.int32)
    for r in range(len(bits)):
        size = 0
        for j in range(gallery):
            if label_ranks[r, j] >= 0:
                keys[size], columns[size] = _order_bits(bits[r, j]), j
                size += 1
        if size == 0:
            continue
        ordered, order = _sort(keys, columns, spare_keys, spare_columns, size, counts)
        start_of, stop_of = _tied_ranges(ordered[:size])
        order = order[:size].copy()
        start = 0
        while start < size:
            stop = stop_of[start]
            if stop - start > 1:  # by rising label rank, so that no tied pair is discordant
                tied = order[start:stop].copy()
                order[start:stop] = tied[np.argsort(label_ranks[r][tied], kind="mergesort")]
            start = stop
        _rank_effects(label_ranks[r][order], gains[r][order], order, start_of, stop_of, effects[r])


@njit(nogil=True, cache=True, error_model="numpy")
def _rank_effects(ranks: Jit, gains: Jit, columns: Jit, start_of: Jit, stop_of: Jit, out: Jit) -> None:
    """Effects of the items of one ranking, sorted by score and then label rank; ``out`` is (G, 3), by column."""
    size, highest = len(ranks), ranks.max()
    label_tied, label_centre = np.zeros(highest + 1, np.int64), np.zeros(highest + 1)
    for i in range(size):
        label_tied[ranks[i]] += 1
    below = 0
    for rank in range(highest + 1):
        label_centre[rank] = below + (label_tied[rank] - 1) / 2 - (size - 1) / 2
        below += label_tied[rank]
    discordant, nearer, later = _pair_sums(ranks, gains, _mean_inverse_ranks(start_of, stop_of, 1), highest)
    _tau_rho_effects(ranks, columns, start_of, stop_of, label_tied, label_centre, discordant, out)
    _h_ap_effects(gains, columns, start_of, stop_of, nearer, later, out)


@njit(nogil=True, cache=True)
def _tied_ranges(scores: Jit) -> tuple[Jit, Jit]:
    """First place, and place after the last, of the items that share each item's score."""
    size = len(scores)
    start_of, stop_of = np.empty(size, np.int64), np.empty(size, np.int64)
    start = 0
    while start < size:
        stop = start + 1
        while stop < size and scores[stop] == scores[start]:
            stop += 1
        start_of[start:stop] = start
        stop_of[start:stop] = stop
        start = stop
    return start_of, stop_of


@njit(nogil=True, cache=True)
def _mean_inverse_ranks(start_of: Jit, stop_of: Jit, fewer: int) -> Jit:
    """Mean of 1 / rank over the places of each item's tied range, ``fewer`` items before it left out."""
    means = np.zeros(len(start_of))
    for i in range(len(means)):
        start, stop = start_of[i] - fewer, stop_of[i] - fewer
        if i > start_of[i]:
            means[i] = means[i - 1]
        elif start >= 0:
            for rank in range(start + 1, stop + 1):
                means[i] += 1 / rank / (stop - start)
    return means


@njit(nogil=True, cache=True)
def _tied_slope(start: int, stop: int) -> float:
    """Mean over places of (share of the other tied items before it) / rank."""
    slope = 0.0
    for rank in range(start + 1, stop + 1):
        slope += (rank - start - 1) / rank
    return slope / max(1, (stop - start) * (stop - start - 1))


@njit(nogil=True, cache=True)
def _pair_sums(ranks: Jit, gains: Jit, weights: Jit, highest: int) -> tuple[Jit, Jit, Jit]:
    """Of each item: its discordant pairs; sum of min(g, g') over items before; weighted sum of it over items after.

    Two label ranks differ first at one bit. For each bit, one pass forwards and one backwards sum over the items that
    agree in all higher bits and differ there.
    """
    size = len(ranks)
    discordant, nearer, later = np.zeros(size), np.zeros(size), np.zeros(size)
    weighted = weights * gains
    sums = np.zeros((highest + 2, 3))
    bit = 0
    while highest >> bit > 0:  # without branches, which the processor could not foresee
        sums[: (highest >> bit) + 2] = 0
        for i in range(size):
            group = ranks[i] >> bit
            is_far, other = group & 1, sums[group ^ 1]
            # items before a farther one that have a 0 have the greater gain; those with a 1 before a nearer one less
            nearer[i] += is_far * gains[i] * other[0] + (1 - is_far) * other[1]
            discordant[i] += (1 - is_far) * other[0]
            sums[group, 0] += 1
            sums[group, 1] += gains[i]
        sums[: (highest >> bit) + 2] = 0
        for i in range(size - 1, -1, -1):
            group = ranks[i] >> bit
            is_far, other = group & 1, sums[group ^ 1]
            later[i] += is_far * gains[i] * other[1] + (1 - is_far) * other[2]
            discordant[i] += is_far * other[0]
            sums[group, 0] += 1
            sums[group, 1] += weights[i]
            sums[group, 2] += weighted[i]
        bit += 1
    if highest + 1 == size:  # no two labels are equally far
        return discordant, nearer, later
    sums[:] = 0
    for i in range(size):
        nearer[i] += gains[i] * sums[ranks[i], 0]
        sums[ranks[i], 0] += 1
    sums[:] = 0
    for i in range(size - 1, -1, -1):
        later[i] += gains[i] * sums[ranks[i], 1]
        sums[ranks[i], 1] += weights[i]
    return discordant, nearer, later


@njit(nogil=True, cache=True, error_model="numpy")
def _tau_rho_effects(
    ranks: Jit, columns: Jit, start_of: Jit, stop_of: Jit, label_tied: Jit, label_centre: Jit, discordant: Jit, out: Jit
) -> None:
    """Leaving out g moves the centred rank of every other item h by -sign(h - g) / 2 on each side."""
    size = len(ranks)
    score_rank = (start_of + stop_of - 1) / 2 - (size - 1) / 2  # centred average ranks
    label_rank = label_centre[ranks]
    # per side, the sum over items above less that over items below, of the ranks of either side
    score_by_score, label_by_score = _above_less_below(start_of, stop_of, score_rank, label_rank)
    score_by_label, label_by_label = _label_sums(ranks, score_rank, label_rank, len(label_tied))
    both_tied = np.ones(size, np.int64)  # items of equal score and label: neighbours in this order
    for i in range(1, size):
        if start_of[i] == start_of[i - 1] and ranks[i] == ranks[i - 1]:
            both_tied[i] = both_tied[i - 1] + 1
    for i in range(size - 2, -1, -1):
        if start_of[i] == start_of[i + 1] and ranks[i] == ranks[i + 1]:
            both_tied[i] = both_tied[i + 1]
    surplus = np.empty(size)  # concordant less discordant pairs of each item
    score_ties = label_ties = 0.0
    for i in range(size):
        score_tied = stop_of[i] - start_of[i]
        surplus[i] = size - score_tied - label_tied[ranks[i]] + both_tied[i] - 2 * discordant[i]
        score_ties += (score_tied - 1) / 2
        label_ties += (label_tied[ranks[i]] - 1) / 2
    total, pairs = surplus.sum() / 2, size * (size - 1) / 2
    if pairs - score_ties < 0.5 or pairs - label_ties < 0.5:  # one side is constant anyway
        return
    product = (score_rank * label_rank).sum()
    score_square, label_square = (score_rank**2).sum(), (label_rank**2).sum()
    tau = total / np.sqrt(pairs - score_ties) / np.sqrt(pairs - label_ties)
    rho = product / np.sqrt(score_square) / np.sqrt(label_square)
    fewer = pairs - (size - 1)
    for i in range(size):
        score_tied, tied = stop_of[i] - start_of[i], label_tied[ranks[i]]
        score_pairs, label_pairs = fewer - score_ties + score_tied - 1, fewer - label_ties + tied - 1
        if score_pairs < 0.5 or label_pairs < 0.5:  # one side is constant without it
            out[columns[i], :2] = np.nan
            continue
        out[columns[i], 0] = (total - surplus[i]) / np.sqrt(score_pairs) / np.sqrt(label_pairs) - tau
        a, b = score_rank[i], label_rank[i]
        rest = product - a * b - score_by_label[i] / 2 - label_by_score[i] / 2 + surplus[i] / 4
        score_rest = score_square - a * a - score_by_score[i] + (size - score_tied) / 4
        label_rest = label_square - b * b - label_by_label[i] + (size - tied) / 4
        out[columns[i], 1] = rest / np.sqrt(score_rest) / np.sqrt(label_rest) - rho


@njit(nogil=True, cache=True)
def _above_less_below(start_of: Jit, stop_of: Jit, first: Jit, second: Jit) -> tuple[Jit, Jit]:
    """Per item, sums of two values over items of higher score less those over items of lower score."""
    size = len(first)
    sums = np.zeros((size + 1, 2))
    for i in range(size):
        sums[i + 1, 0] = sums[i, 0] + first[i]
        sums[i + 1, 1] = sums[i, 1] + second[i]
    results = np.empty((2, size))
    for i in range(size):
        for side in range(2):
            results[side, i] = sums[size, side] - sums[stop_of[i], side] - sums[start_of[i], side]
    return results[0], results[1]


@njit(nogil=True, cache=True)
def _label_sums(ranks: Jit, first: Jit, second: Jit, different: int) -> tuple[Jit, Jit]:
    """Per item, sums of two values over items of farther label less those over items of nearer label."""
    size = len(ranks)
    below = np.zeros((different + 1, 2))
    for i in range(size):
        below[ranks[i] + 1, 0] += first[i]
        below[ranks[i] + 1, 1] += second[i]
    for rank in range(different):
        below[rank + 1] += below[rank]
    results = np.empty((2, size))
    for i in range(size):
        for side in range(2):
            results[side, i] = below[different, side] - below[ranks[i] + 1, side] - below[ranks[i], side]
    return results[0], results[1]


@njit(nogil=True, cache=True, error_model="numpy")
def _h_ap_effects(gains: Jit, columns: Jit, start_of: Jit, stop_of: Jit, nearer: Jit, later: Jit, out: Jit) -> None:
    """Items after the one that is left out move up a place; those tied with it share their places among fewer.

    An item adds W (g + A) + S B, with A the sum of min(g, g') over items before its tied range, B that over the others
    of it, W the mean of 1 / rank and S the slope over the range (``_tied_slope``).
    """
    size, whole = len(gains), gains.sum()
    if not whole > 0:
        return
    tied_sum = np.zeros(size)  # B
    later_tied = np.zeros(size)  # of items of the range behind it, whose gains are not greater
    start = 0
    while start < size:
        behind = 0.0
        for i in range(stop_of[start] - 1, start - 1, -1):
            later_tied[i] = behind
            tied_sum[i] = behind + (i - start) * gains[i]
            behind += gains[i]
        start = stop_of[start]
    moved = _mean_inverse_ranks(start_of, stop_of, 1)
    before = 0.0  # what items before the range add
    parts = np.zeros(size)  # what each item adds once one before its range is left out, but for the lost pair
    slope = 0.0
    for i in range(size):
        if start_of[i] > 0:
            if i == start_of[i]:
                slope = _tied_slope(start_of[i] - 1, stop_of[i] - 1)
            strictly = nearer[i] - (i - start_of[i]) * gains[i]
            parts[i] = moved[i] * (gains[i] + strictly) + slope * tied_sum[i]
    after = parts.sum()
    results = np.empty(size)
    start = 0
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
