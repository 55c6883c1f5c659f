"""Which pairs of items to ask a slow label distance for: random ones, nearest ones, neighbours of neighbours."""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.distances.nearest import Neighbors
from cml.retrieval.search import nearest_others

_SPARE = 16  # neighbours beyond those that are wanted, in place of those that were asked for
_LEAST_SHARE = 0.1  # of either kind of pairs, so that its use stays known


class PairKind(IntEnum):
    """Why a pair is asked for."""

    BOTH = 0  # it is nearest in the embedding, and of neighbours of neighbours
    OF_NEIGHBORS = 1
    NEAREST = 2


class ChosenPairs(NamedTuple):
    """Pairs to ask for, in order."""

    keys: Int64  # (P,) keys of the pairs
    kinds: Int64  # (P,) the ``PairKind`` of each


def pair_keys(pairs: Int64, items: int) -> Int64:
    """Number pairs (P, 2) of N items, whichever item comes first: (P,)."""
    keys: Int64 = pairs.min(axis=1) * items + pairs.max(axis=1)
    return keys


def pairs_of_keys(keys: Int64, items: int) -> Int64:
    """The pairs (P, 2) of ``pair_keys``, the lower item first."""
    return np.stack(np.divmod(keys, items), axis=1)


def draw_pairs(
    items: int,  # N
    count: int,  # P, at most N (N - 1) / 2
    rng: np.random.Generator,
) -> Int64:  # (P,) keys of pairs, in random order
    """Draw different pairs of items, each with the same probability."""
    numbers = rng.choice(items * (items - 1) // 2, count, replace=False)
    # pair number q has the higher item b, before which b (b - 1) / 2 pairs are numbered
    higher = ((1 + np.sqrt(1 + 8 * numbers.astype(np.float64))) / 2).astype(np.int64)
    higher -= higher * (higher - 1) // 2 > numbers
    higher += higher * (higher + 1) // 2 <= numbers
    lower = numbers - higher * (higher - 1) // 2
    return pair_keys(np.stack([lower, higher], axis=1), items)


def choose_nearest(
    embeddings: Float32,  # (N, D) embeddings
    asked: Int64,  # keys of the pairs that were asked for, ascending
    count: int,  # P, how many pairs are wanted
) -> Int64:  # (P,) keys of pairs, fewer where there are fewer
    """Find the nearest pairs of an embedding that were not asked for: first each item's nearest, then the next ones."""
    items = len(embeddings)
    wanted = -(-2 * count // items) + 1  # two items may have each other as their next
    depth = min(items - 1, wanted + 2 * len(asked) // items + _SPARE)
    _, neighbors = nearest_others(embeddings, np.arange(items), depth)
    keys = pair_keys(np.stack([np.repeat(np.arange(items), depth), neighbors.ravel()], axis=1), items)
    is_new = ~is_in(keys, asked).reshape(items, depth)
    ranks = np.cumsum(is_new, axis=1).ravel()  # among the new ones of an item, from 1
    places = np.flatnonzero(is_new.ravel())
    places = places[np.argsort(ranks[places], kind="stable")]
    _, first = np.unique(keys[places], return_index=True)
    return keys[places[np.sort(first)[:count]]]


def choose_of_neighbors(
    lists: Neighbors,
    asked: Int64,  # keys of the pairs that were asked for, ascending
    count: int,  # P, how many pairs are wanted
) -> Int64:  # (P,) keys of pairs, fewer where there are fewer: first those that most items lie between
    """Find pairs that were not asked for, of which one item is a neighbour of a neighbour of the other.

    A neighbour of a neighbour is likely to be a neighbour itself (Dong, Moses, Li: Efficient k-nearest neighbor graph
    construction for generic similarity measures, WWW 2011).
    """
    items = len(lists.ids)
    middles = lists.ids.clip(min=0)  # of a list that is too short
    ends = lists.ids[middles]  # (N, k, k)
    lengths = lists.distances[:, :, None] + lists.distances[middles]
    starts = np.broadcast_to(np.arange(items)[:, None, None], ends.shape)
    is_way = (lists.ids >= 0)[:, :, None] & (ends >= 0) & (ends != starts) & np.isfinite(lengths)
    keys = pair_keys(np.stack([starts[is_way], ends[is_way]], axis=1), items)
    is_new = ~is_in(keys, asked)
    found, places, ways = np.unique(keys[is_new], return_inverse=True, return_counts=True)
    shortest = np.full(len(found), np.inf, np.float32)
    np.minimum.at(shortest, places, lengths[is_way][is_new])
    return found[np.lexsort((shortest, -ways))][:count]


def combine_choices(
    nearest: Int64,
    of_neighbors: Int64,
    count: int,  # P, how many pairs are wanted; neither of the two is longer
    share: float,
) -> ChosenPairs:
    """Combine the pairs that are nearest in an embedding and those of neighbours of neighbours.

    Pairs that are both are the likeliest neighbours and come first. The others follow by turns, because time may end a
    round early.
    """
    both = of_neighbors[is_in(of_neighbors, np.sort(nearest))]
    left = count - len(both)
    only_neighbors = of_neighbors[~is_in(of_neighbors, np.sort(both))][: int(share * left)]
    only_nearest = nearest[~is_in(nearest, np.sort(both))][: left - len(only_neighbors)]
    turns = np.concatenate([np.arange(len(only_neighbors)), np.arange(len(only_nearest))])
    order = np.argsort(turns, kind="stable")
    kinds = np.repeat([PairKind.OF_NEIGHBORS, PairKind.NEAREST], [len(only_neighbors), len(only_nearest)])
    return ChosenPairs(
        np.concatenate([both, np.concatenate([only_neighbors, only_nearest])[order]]),
        np.concatenate([np.full(len(both), PairKind.BOTH), kinds[order]]),
    )


def find_share(asked: ChosenPairs, lists: Neighbors) -> float:
    """Find the share of neighbours of neighbours that suits the next pairs, by what those of the last ones brought.

    A pair has brought something if it is in the list of one of its items. The share is that of one kind's rate in the
    rates of both, with one success and one failure added to each.
    """
    items, k = lists.ids.shape
    pairs = np.stack([np.repeat(np.arange(items), k), lists.ids.ravel()], axis=1)
    listed = np.unique(pair_keys(pairs[pairs[:, 1] >= 0], items))
    has_brought = is_in(asked.keys, listed)
    rates = []
    for kind in (PairKind.OF_NEIGHBORS, PairKind.NEAREST):
        is_kind = asked.kinds == kind
        rates.append((has_brought[is_kind].sum() + 1) / (is_kind.sum() + 2))
    return float(np.clip(rates[0] / sum(rates), _LEAST_SHARE, 1 - _LEAST_SHARE))


def is_in(keys: Int64, ascending: Int64) -> Bools:
    """Whether each key is among ascending ones."""
    if not len(ascending):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(ascending, keys), len(ascending) - 1)
    found: Bools = ascending[places] == keys
    return found
