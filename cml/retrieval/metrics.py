"""Measures of a ranked gallery against label distances: pure functions over a block of R queries and G gallery items.

All take ``retrieved`` (R, K), the label distances of the items in the order retrieved, or the whole block (R, G). A
query for which a measure does not exist gives NaN; means leave it out and count it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]


def retrieved_distances(label_distances: Float32, scores: Floats, k: int) -> Float32:
    """Label distances of the first k items of each ranking.

    Args:
        label_distances: (R, G) label distances, infinite where two labels cannot be compared.
        scores: (R, G) without NaN; the gallery is ranked by rising score, ties by the lower column.
        k: Items per query, 1 <= k <= G.

    Returns:
        (R, k) label distances in the order retrieved. ``retrieved_distances(d, d, k)`` is the ideal order.

    Raises:
        UserError: k is not in 1..G, or the shapes differ.

    Example:
        >>> d = np.array([[3.0, 1.0, 2.0]], np.float32)
        >>> retrieved_distances(d, np.array([[0.1, 0.3, 0.2]]), 2)
        array([[3., 2.]], dtype=float32)
    """
    from cml.retrieval.top_k import top_columns

    if label_distances.shape != scores.shape:
        raise UserError(
            "The 'label_distances' and the 'scores' must have the same shape (R, G). "
            f"Got {label_distances.shape} and {scores.shape} instead."
        )
    return np.take_along_axis(label_distances, top_columns(scores, k), axis=1)


def mean_label_distance(retrieved: Float32, ks: Sequence[int]) -> Float64:
    """Mean label distance of the top K of each query; lower is better.

    Items that cannot be compared (infinite) are left out of their query's mean, so that a ranking which retrieves many
    of them can be below the ideal one; nDCG counts them as misses. A query with only such items in its top K gives NaN.

    Args:
        retrieved: (R, >= max K) label distances in the order retrieved.
        ks: The K.

    Returns:
        (R, len(ks)) float64 in the unit of the label distance.

    Raises:
        UserError: a K is not in 1..K of ``retrieved``.
    """
    at = columns_of(ks, retrieved)
    retrieved = retrieved[:, : max(ks)]
    finite = np.isfinite(retrieved)
    totals = np.cumsum(np.where(finite, retrieved, 0), axis=1, dtype=np.float64)[:, at]
    counts = np.cumsum(finite, axis=1)[:, at]
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def ndcg(gains: Float64, ideal_gains: Float64, ks: Sequence[int]) -> Float64:
    """Normalised discounted cumulative gain of the top K; 1 is the order of the labels, higher is better.

    DCG@K = sum over ranks k = 1..K of gain_k / log2(k + 1), divided by the DCG@K of the gallery sorted by label
    distance (Jarvelin and Kekalainen, Cumulated gain-based evaluation of IR techniques, 2002).

    Args:
        gains: (R, >= max K) gains in the order retrieved, from ``relevance_gains``.
        ideal_gains: (R, >= max K) gains in the order of the label distance.
        ks: The K.

    Returns:
        (R, len(ks)) float64; NaN where the ideal gain is zero (nothing in the gallery can be compared).

    Raises:
        UserError: a K is not in 1..K of the gains.
    """
    at = columns_of(ks, gains)
    columns_of(ks, ideal_gains)
    depth = max(ks)
    discounts = 1 / np.log2(np.arange(2, depth + 2))  # (depth,)
    reached = np.cumsum(gains[:, :depth] * discounts, axis=1)[:, at]
    ideal = np.cumsum(ideal_gains[:, :depth] * discounts, axis=1)[:, at]
    return np.where(ideal > 0, reached / np.where(ideal > 0, ideal, 1), np.nan)


def hits(retrieved: Float32, ideal: Float32, ks: Sequence[int], neighbors: int = 50) -> Float64:
    """1 where any of the top K is among the query's true nearest, else 0; higher is better.

    An item is one of the ``neighbors`` true nearest if its label distance is at most that of the last of them, so that
    tied labels are treated alike.

    Args:
        retrieved: (R, >= max K) label distances in the order retrieved.
        ideal: (R, >= neighbors) the smallest label distances, rising.
        ks: The K.
        neighbors: True nearest items per query.

    Returns:
        (R, len(ks)) float64 of 0 and 1; NaN where nothing in the gallery can be compared.

    Raises:
        UserError: a K or ``neighbors`` is not in the range of its array.
    """
    at = columns_of(ks, retrieved)
    columns_of([neighbors], ideal)
    border = ideal[:, neighbors - 1, None]  # (R, 1)
    retrieved = retrieved[:, : max(ks)]
    near = (retrieved <= border) & np.isfinite(retrieved)
    found = np.logical_or.accumulate(near, axis=1)[:, at].astype(np.float64)
    found[np.isinf(ideal[:, 0])] = np.nan
    return found


def _reciprocal(distances: Float32, _: Float32) -> Float64:
    return 1 / (1 + distances.astype(np.float64))


def _exponential(distances: Float32, label_distances: Float32) -> Float64:
    nearest = label_distances.min(axis=1, keepdims=True).astype(np.float64)
    # a factor per query does not change nDCG; without exp(nearest) the gains of far labels would underflow to 0
    return np.exp(np.where(np.isfinite(nearest), nearest, 0) - distances)


def _rank(distances: Float32, label_distances: Float32) -> Float64:
    ordered = np.sort(label_distances, axis=1)
    nearer = np.array([np.searchsorted(row, values) for row, values in zip(ordered, distances, strict=True)])
    return np.where(np.isfinite(distances), 1 / (1 + nearer), 0)


GAINS: Mapping[str, tuple[str, Callable[[Float32, Float32], Float64]]] = {
    "reciprocal": ("1/(1+d)", _reciprocal),
    "exponential": ("exp(-d)", _exponential),
    "rank": ("1/(1+number of nearer items)", _rank),
}
"""Formula and function of each gain of nDCG, by name."""


def relevance_gains(distances: Float32, label_distances: Float32, gain: str = "reciprocal") -> Float64:
    """Gains of retrieved items for nDCG; an item that cannot be compared has gain 0.

    "reciprocal" is 1/(1+d), the same as 2^(-log2(d+1)), and "exponential" exp(-d) up to a factor per query: both
    depend on the unit of d. "rank" is 1/(1+r), with r the number of gallery items that are nearer in label distance:
    it depends only on their order.

    Args:
        distances: (R, K) label distances of the items.
        label_distances: (R, G) label distances of the whole gallery.
        gain: A name in ``GAINS``.

    Returns:
        (R, K) float64 in 0..1.

    Raises:
        UserError: an unknown name.
    """
    if gain not in GAINS:
        raise UserError(f"The 'gain' must be one of {', '.join(GAINS)}. Got {gain!r} instead.")
    return GAINS[gain][1](distances, label_distances)


def kendall_tau(scores: Floats, label_distances: Float32) -> Float64:
    """Kendall's tau-b of each query between score and label distance over the whole gallery.

    The value of ``scipy.stats.kendalltau`` over the pairs whose label distance is finite.

    Args:
        scores: (R, G) without NaN, lower = nearer.
        label_distances: (R, G), infinite where two labels cannot be compared.

    Returns:
        (R,) float64 in -1..1; NaN where either side is constant.
    """
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    return rank_correlations(scores, dense_ranks(label_distances))[0]


def spearman_rho(scores: Floats, label_distances: Float32) -> Float64:
    """Spearman's rho of each query, as ``kendall_tau`` and with the value of ``scipy.stats.spearmanr``."""
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    return rank_correlations(scores, dense_ranks(label_distances))[1]


def h_ap(scores: Floats, label_distances: Float32) -> Float64:
    """Hierarchical average precision of each query's whole ranking; 1 is the order of the labels, higher is better.

    H-AP = sum_k (h_k / r_k) / sum_k g_k with r_k the rank of item k, h_k = g_k + sum over items j before it of
    min(g_j, g_k), and gains g = exp(-d / d_10), d_10 the label distance of the query's 10th nearest item (Ramzi et al.,
    Hierarchical Average Precision Training for Pertinent Image Retrieval, ECCV 2022, equations 2 to 4; gains of
    continuous labels are cml's). With gains of 0 and 1 it is average precision. It equals graded average precision
    (Robertson, Kanoulas, Yilmaz, SIGIR 2010) where the gain of an item is the chance that its grade counts as relevant.
    Of items with one score it is the mean over their orders. Items that cannot be compared are left out.

    Args:
        scores: (R, G) without NaN, lower = nearer.
        label_distances: (R, G), infinite where two labels cannot be compared.

    Returns:
        (R,) float64 in 0..1; NaN where nothing can be compared.
    """
    from cml.retrieval.graded_precision import NEIGHBORS, graded_gains
    from cml.retrieval.rank_correlation import dense_ranks, rank_correlations

    nearest = retrieved_distances(label_distances, label_distances, min(NEIGHBORS, label_distances.shape[1]))
    return rank_correlations(scores, dense_ranks(label_distances), graded_gains(label_distances, nearest))[2]


def columns_of(ks: Sequence[int], values: NDArray[Any]) -> list[int]:
    """The column of each K in ``values``; ``UserError`` if there is none."""
    wrong = [k for k in ks if not 1 <= k <= values.shape[1]]
    if wrong or not len(ks):
        raise UserError(f"Every K must be at least 1 and at most {values.shape[1]}. Got {list(ks)} instead.")
    return [k - 1 for k in ks]
