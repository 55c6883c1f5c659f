"""Feature duplicates: test items whose features lie nearer to a training item than those of different items can."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float64, Floating, Int64
from cml.plausibility.finding import Finding

_NEIGHBORS = 5  # of a training item, whose distance says how far apart different items are around it
_LARGEST_SHARE = 0.4  # of that distance; photographs of different things come as near as 0.5
_FALSE_ALARMS = 0.05  # expected in a dataset where no item is a duplicate
_MOST_SAMPLED = 1000  # training items by which the dimension is estimated
_BLOCK = 1 << 23  # products at a time


def find_feature_duplicates(
    train_ids: Sequence[str],
    train: Floating,  # their features, (N, F)
    test_ids: Sequence[str],
    test: Floating,  # their features, (M, F)
) -> list[Finding]:
    """Find test items whose features are almost those of a training item.

    Around each training item, the distance to its 5th neighbour among the others says how far apart different items
    are. By chance, a test item comes nearer than a share r of it with a probability of at most 5 r^m in m dimensions,
    since volumes grow by r^m. m is estimated by the distances of neighbours (Levina and Bickel, NeurIPS 2004), and r is
    chosen so that 0.05 false alarms are expected in all test items; it is at most 0.4. In few dimensions no closeness
    is suspicious but equality.
    """
    nearest, shares = match_features(_normalize(test), _normalize(train))
    found = np.flatnonzero(nearest >= 0)
    if not len(found):
        return []
    found = found[np.argsort(shares[found], kind="stable")]
    return [
        Finding(
            "feature-duplicates",
            f"the features of {len(found)} of {len(test_ids)} test items are almost those of a training item",
            "Keep such items on one side of the split: name what belongs together by --group-column, or delete copies.",
            len(found),
            len(test_ids),
            [f"{test_ids[place]} and {train_ids[nearest[place]]}" for place in found[:8].tolist()],
        )
    ]


def match_features(
    test: Float64,  # (M, F) features of length 1, or 0 where an item has none
    train: Float64,  # (N, F) likewise
) -> tuple[Int64, Float64]:
    """Find for each test item the training item that it duplicates; exact.

    Returns (M,) the position of the nearest training item if it is a duplicate, else -1; (M,) the distance to it as a
    share of that to its 5th neighbour.
    """
    nearest, shares = np.full(len(test), -1, np.int64), np.full(len(test), np.inf)
    is_known, is_asked = train.any(axis=1), test.any(axis=1)
    rows = np.flatnonzero(is_known)
    if len(rows) < 2 * _NEIGHBORS or not is_asked.any():
        return nearest, shares
    known, asked = train[rows], np.flatnonzero(is_asked)
    places, distances = find_nearest(test[asked], known, 1)
    bases, base_of = np.unique(places[:, 0], return_inverse=True)
    scales = _find_others(known, bases)[:, -1][base_of]
    sample = np.unique(np.linspace(0, len(known) - 1, min(len(known), _MOST_SAMPLED)).astype(int))
    dimension = estimate_dimension(_find_others(known, sample))
    allowed = min(_LARGEST_SHARE, (_FALSE_ALARMS / (_NEIGHBORS * len(asked))) ** (1 / dimension))
    is_near = (distances[:, 0] <= allowed * scales) & (scales > 0)
    shares[asked[is_near]] = distances[is_near, 0] / scales[is_near]
    nearest[asked[is_near]] = rows[places[is_near, 0]]
    return nearest, shares


def find_nearest(
    asked: Float64,  # (M, F) rows of length 1
    known: Float64,  # (N, F) rows of length 1, N at least ``count``
    count: int,
) -> tuple[Int64, Float64]:  # (M, K) positions, nearest first, and (M, K) distances, which are 0 for equal rows
    """Find the nearest rows by Euclidean distance, by blocks of products."""
    places = np.empty((len(asked), count), np.int64)
    distances = np.empty((len(asked), count))
    step = max(1, _BLOCK // len(known))
    for start in range(0, len(asked), step):
        rows = asked[start : start + step]
        chosen = np.argpartition(-(rows @ known.T), count - 1, axis=1)[:, :count]
        apart = np.linalg.norm(known[chosen] - rows[:, None], axis=2)  # products would round small distances away
        order = np.argsort(apart, axis=1, kind="stable")
        places[start : start + step] = np.take_along_axis(chosen, order, axis=1)
        distances[start : start + step] = np.take_along_axis(apart, order, axis=1)
    return places, distances


def estimate_dimension(
    distances: Float64,  # (N, K) distances of the K nearest others of N items, ascending
) -> float:  # the dimension, 1 or more; 1 where most distances are 0
    """Estimate the dimension of the space that items lie in by the distances of their neighbours."""
    farthest = distances[:, -1]
    spread = distances[(farthest > 0) & (distances[:, 0] > 0)]
    if not len(spread):
        return 1.0
    inverse = float(np.log(spread[:, -1:] / spread[:, :-1]).mean())
    return max(1.0, 1 / inverse) if inverse > 0 else 1.0


def _find_others(known: Float64, rows: Int64) -> Float64:
    """The distances of some rows to their nearest others, (rows, 5), ascending."""
    return find_nearest(known[rows], known, _NEIGHBORS + 1)[1][:, 1:]


def _normalize(rows: Floating) -> Float64:
    """Rows of length 1; those of length 0, or of numbers that are not finite, become 0."""
    exact = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0).astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    return np.asarray(exact / np.where(lengths > 0, lengths, 1))
