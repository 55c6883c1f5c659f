"""Rankings of the items whose label distance from the query is known, without the others.

In a ranking of all items, those of unknown label distance take the first places of most queries where few distances are
known, and no metric can tell whether they are near. A condensed list leaves them out (Sakai, Alternatives to Bpref,
SIGIR 2007).
"""

from dataclasses import replace

import numpy as np

from cml.array_types import Bools, Float32, Float64, Floating, Int64
from cml.distances import LabelDistance, Labels
from cml.retrieval.evaluate_options import DISTANCE_KS, HIT_KS, NDCG_KS, EvaluateOptions
from cml.retrieval.metrics.metric import cut_ks
from cml.retrieval.ranking import Ranking
from cml.retrieval.ranking_ties import rank_columns

_COUNTED = 256  # queries whose known items are counted
_ROWS = 16  # of them at a time


def count_known(
    distance: LabelDistance,
    query_labels: Labels,  # Q labels, encoded by it
    gallery_labels: Labels,  # G labels, encoded by it
) -> int:
    """Count the gallery items whose label distance from a query is known."""
    chosen = np.unique(np.linspace(0, len(query_labels) - 1, min(_COUNTED, len(query_labels))).astype(np.int64))
    parts = (query_labels[chosen[start : start + _ROWS]] for start in range(0, len(chosen), _ROWS))
    counts = [np.isfinite(distance.pairwise(part, gallery_labels)).sum(axis=1) for part in parts]
    return int(np.median(np.concatenate(counts)))


def cut_options(options: EvaluateOptions, known_items: int, gallery: int) -> EvaluateOptions:
    """Cut the default K to the items that a query ranks, as they are cut to a small gallery.

    The sample for metrics of the whole ranking becomes as much larger as the gallery is.
    """
    distance_ks, ndcg_ks, hit_ks = options.distance_ks, options.ndcg_ks, options.hit_ks
    if tuple(distance_ks) == DISTANCE_KS:
        distance_ks = cut_ks(DISTANCE_KS, known_items)
    if tuple(ndcg_ks) == NDCG_KS:
        ndcg_ks = cut_ks(NDCG_KS, known_items)
    if tuple(hit_ks) == HIT_KS and 10 * options.hit_neighbors > known_items:
        hit_ks = ()  # a random ranking would hit more often than not
    sample = options.ranking_sample * gallery // max(1, min(known_items, gallery))
    return replace(options, distance_ks=distance_ks, ndcg_ks=ndcg_ks, hit_ks=hit_ks, ranking_sample=sample)


def comparable_lists(
    ranking: Ranking,  # of R queries; their scores are infinite only where label distances are
    k: int,
    *,
    first: int = 0,
    seed: int = 0,
) -> tuple[Float32, Int64]:  # (R, K + 1) label distances and positions, fewer of a smaller gallery
    """The first K + 1 items that can be compared with the query, whatever lies between them.

    The mean label distance of the first K is at least that of the K nearest, as the mean of the comparable ones among
    the first K is not.
    """
    distances, length = ranking.labels.distances, min(k + 1, ranking.labels.distances.shape[1])
    retrieved, items = ranking.retrieved[:, :length], ranking.items[:, :length]
    left_out = np.isinf(retrieved).any(axis=1)
    if left_out.any():
        retrieved, items = retrieved.copy(), items.copy()
    for row in np.flatnonzero(left_out).tolist():
        some = slice(row, row + 1)
        scores = put_last(ranking.scores[some], np.isinf(distances[some]))
        items[row] = rank_columns(scores, length, first=first + row, seed=seed)[0][0, :length]
        retrieved[row] = distances[row, items[row]]
    return retrieved, items


def put_last(
    scores: Floating,  # (R, G) by which the gallery is ranked, rising; infinite only where it is left out
    left_out: Bools,  # (R, G) the items to put last. They get scores of their own, so that they are no ties
) -> Float64:  # (R, G) the scores
    """Put items behind all others of their ranking.

    Example:
        >>> put_last(np.array([[0.5, 3.0, 1.0]]), np.array([[True, False, False]]))
        array([[4., 3., 1.]])
    """
    highest = np.max(scores, axis=1, keepdims=True, initial=0.0, where=~left_out)
    return np.where(left_out, highest.astype(np.float64) + np.arange(1, scores.shape[1] + 1), scores)
