"""Measures of ``retrieved`` (R, K), the label distances of R rankings; NaN for a query for which one does not exist."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


def retrieved_distances(label_distances: Float32, scores: Floats, k: int) -> Float32:
    """Label distances of the first k items of each ranking (R, k): by rising score, ties by the lower column."""
    from cml.retrieval.top_k import top_columns

    if label_distances.shape != scores.shape:
        raise UserError(
            "The 'label_distances' and the 'scores' must have the same shape (R, G). "
            f"Got {label_distances.shape} and {scores.shape} instead."
        )
    return np.take_along_axis(label_distances, top_columns(scores, k), axis=1)


def mean_label_distance(retrieved: Float32, ks: Sequence[int]) -> Float64:
    """Mean of the finite label distances of the top K of each query (R, len(ks)), NaN of none; lower is better."""
    at = columns_of(ks, retrieved)
    retrieved = retrieved[:, : max(ks)]
    finite = np.isfinite(retrieved)
    totals = np.cumsum(np.where(finite, retrieved, 0), axis=1, dtype=np.float64)[:, at]
    counts = np.cumsum(finite, axis=1)[:, at]
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def ndcg(gains: Float64, ideal_gains: Float64, ks: Sequence[int]) -> Float64:
    """Normalised discounted cumulative gain of the top K (R, len(ks)); 1 is the order of the labels, higher is better.

    DCG@K = sum over ranks k = 1..K of gain_k / log2(k + 1), divided by that of the ``ideal_gains`` of the nearest
    (Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, 2002).
    """
    at = columns_of(ks, gains)
    columns_of(ks, ideal_gains)
    depth = max(ks)
    discounts = 1 / np.log2(np.arange(2, depth + 2))  # (depth,)
    reached = np.cumsum(gains[:, :depth] * discounts, axis=1)[:, at]
    ideal = np.cumsum(ideal_gains[:, :depth] * discounts, axis=1)[:, at]
    return np.where(ideal > 0, reached / np.where(ideal > 0, ideal, 1), np.nan)


def hits(retrieved: Float32, ideal: Float32, ks: Sequence[int], neighbors: int = 50) -> Float64:
    """1 where any of the top K is as near as the last of the ``neighbors`` nearest in ``ideal``, else 0."""
    at = columns_of(ks, retrieved)
    columns_of([neighbors], ideal)
    border = ideal[:, neighbors - 1, None]  # (R, 1)
    retrieved = retrieved[:, : max(ks)]
    near = (retrieved <= border) & np.isfinite(retrieved)
    found = np.logical_or.accumulate(near, axis=1)[:, at].astype(np.float64)
    found[np.isinf(ideal[:, 0])] = np.nan
    return found


def recall(
    retrieved: Float32, relevant: Float64, ks: Sequence[int], within: float = 0.0, singletons_as_misses: bool = False
) -> Float64:
    """1 where any of the top K is relevant, else 0; higher is better.

    The field's Recall@K (Jegou and others, Product Quantization for Nearest Neighbor Search, 2011), which is not the
    share of the relevant items that were found. With ``within`` it is that of place recognition, where a place counts
    as found within 25 m (Arandjelovic et al., NetVLAD, CVPR 2016). A query of no ``relevant`` (R,) item in the gallery
    gives NaN, or with ``singletons_as_misses`` is a miss, as in the published code of Proxy-Anchor.
    """
    at = columns_of(ks, retrieved)
    found = np.logical_or.accumulate(retrieved[:, : max(ks)] <= within, axis=1)[:, at]
    return np.where(singletons_as_misses | (relevant[:, None] > 0), found, np.nan)


def r_precision(retrieved: Float32, relevant: Float64) -> Float64:
    """The share of the top R that is relevant, R the number of ``relevant`` items of the query; higher is better."""
    return _share(_relevant_among(retrieved, relevant).sum(axis=1), relevant)


def map_at_r(retrieved: Float32, relevant: Float64) -> Float64:
    """Mean average precision at R: (1/R) sum over ranks i = 1..R of precision at i where item i is relevant, else 0.

    Unlike R-precision it rewards an early relevant item more than a late one (Musgrave, Belongie, Lim: A Metric
    Learning Reality Check, ECCV 2020).

    Example:
        >>> map_at_r(np.array([[1, 0, 0]], np.float32), np.array([2.0]))
        array([0.25])
    """
    hit = _relevant_among(retrieved, relevant)
    precision = np.cumsum(hit, axis=1) / np.arange(1, hit.shape[1] + 1)
    return _share((precision * hit).sum(axis=1), relevant)


def _relevant_among(retrieved: Float32, relevant: Float64) -> Float64:
    """1 where one of a query's first R items is relevant, else 0: (R, the largest R)."""
    depth = int(relevant.max(initial=0))
    if depth > retrieved.shape[1]:
        raise UserError(f"A query has {depth} relevant items, but only {retrieved.shape[1]} were retrieved.")
    hit: Float64 = ((retrieved[:, :depth] == 0) & (np.arange(depth) < relevant[:, None])).astype(np.float64)
    return hit


def _share(total: Float64, relevant: Float64) -> Float64:
    return np.where(relevant > 0, total / np.maximum(relevant, 1), np.nan)


def _exponential(distances: Float32, label_distances: Float32) -> Float64:
    nearest = label_distances.min(axis=1, keepdims=True).astype(np.float64)
    # a factor per query does not change nDCG; without exp(nearest) the gains of far labels would underflow to 0
    return np.exp(np.where(np.isfinite(nearest), nearest, 0) - distances)


def _rank(distances: Float32, label_distances: Float32) -> Float64:
    ordered = np.sort(label_distances, axis=1)
    nearer = np.array([np.searchsorted(row, values) for row, values in zip(ordered, distances, strict=True)])
    return np.where(np.isfinite(distances), 1 / (1 + nearer), 0)


GAINS: Mapping[str, tuple[str, Callable[[Float32, Float32], Float64]]] = {
    "reciprocal": ("1/(1+d)", lambda distances, _: 1 / (1 + distances.astype(np.float64))),
    "exponential": ("exp(-d)", _exponential),
    "rank": ("1/(1+number of nearer items)", _rank),
}
"""Formula and function of each gain of nDCG, by name."""


def relevance_gains(distances: Float32, label_distances: Float32, gain: str = "reciprocal") -> Float64:
    """Gains 0..1 of items at ``distances`` (R, K) of a gallery's (R, G); one that cannot be compared has gain 0."""
    if gain not in GAINS:
        raise UserError(f"The 'gain' must be one of {', '.join(GAINS)}. Got {gain!r} instead.")
    return GAINS[gain][1](distances, label_distances)


def spearman_rho(scores: Floats, label_distances: Float32) -> Float64:
    """Spearman's rho of each query (R,) over the items at finite label distances; NaN where a side is constant."""
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    return rank_correlations(scores, dense_ranks(label_distances))[1]


def h_ap(scores: Floats, label_distances: Float32) -> Float64:
    """Hierarchical average precision of each query's whole ranking (R,); 1 is the order of the labels.

    H-AP = sum_k (h_k / r_k) / sum_k g_k with r_k the rank of item k, h_k = g_k + sum over items j before it of
    min(g_j, g_k), and gains g = exp(-d / d_10), d_10 the label distance of the query's 10th nearest item (Ramzi et al.,
    Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, equations 2 to 4; gains of
    continuous labels are cml's). With gains of 0 and 1 it is average precision. It equals graded average precision
    (Robertson, Kanoulas, Yilmaz, SIGIR 2010) where the gain of an item is the chance that its grade counts as relevant.
    Of items with one score it is the mean over their orders. Items that cannot be compared are left out.
    """
    from cml.retrieval.rank_correlation import NEIGHBORS, dense_ranks, graded_gains, rank_correlations

    nearest = retrieved_distances(label_distances, label_distances, min(NEIGHBORS, label_distances.shape[1]))
    return rank_correlations(scores, dense_ranks(label_distances), graded_gains(label_distances, nearest))[2]


def columns_of(ks: Sequence[int], values: NDArray[Any]) -> list[int]:
    """The column of each K in ``values``; ``UserError`` if there is none."""
    wrong = [k for k in ks if not 1 <= k <= values.shape[1]]
    if wrong or not len(ks):
        raise UserError(f"Every K must be at least 1 and at most {values.shape[1]}. Got {list(ks)} instead.")
    return [k - 1 for k in ks]
