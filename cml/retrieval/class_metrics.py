"""Measures of a ranked gallery for class labels: Recall@K, R-precision and MAP@R, pure functions over R queries.

An item is relevant if its label distance to the query is 0, which for class labels means the same class; Recall@K also
takes a threshold. A query without a relevant item in the gallery gives NaN.
"""

from collections.abc import Sequence

import numpy as np

from cml.errors import UserError
from cml.retrieval.metrics import Float32, Float64, columns_of


def recall(
    retrieved: Float32, relevant: Float64, ks: Sequence[int], *, within: float = 0.0, count_lone: bool = False
) -> Float64:
    """1 where any of the top K is relevant, else 0; higher is better.

    The field's Recall@K (Jegou and others, Product Quantization for Nearest Neighbor Search, 2011), which is not the
    share of the relevant items that were found. With ``within`` it is that of place recognition, where a place counts
    as found within 25 m (Arandjelovic et al., NetVLAD, CVPR 2016).

    Args:
        retrieved: (R, >= max K) label distances in the order retrieved.
        relevant: (R,) relevant items of each query in the gallery.
        ks: The K.
        within: The label distance up to which an item is relevant; 0 for classes.
        count_lone: Count a query without a relevant item as a miss, as in the published code of Proxy-Anchor.

    Returns:
        (R, len(ks)) float64 of 0 and 1; NaN for a query without a relevant item unless those are counted.

    Raises:
        UserError: a K is not in 1..K of ``retrieved``.

    Example:
        >>> recall(np.array([[1, 0, 0]], np.float32), np.array([2.0]), [1, 2])
        array([[0., 1.]])
    """
    at = columns_of(ks, retrieved)
    found = np.logical_or.accumulate(retrieved[:, : max(ks)] <= within, axis=1)[:, at]
    return np.where(count_lone | (relevant[:, None] > 0), found, np.nan)


def r_precision(retrieved: Float32, relevant: Float64) -> Float64:
    """The share of the top R that is relevant, R the number of relevant items of the query; higher is better.

    Args:
        retrieved: (R, >= the most relevant items) label distances in the order retrieved.
        relevant: (R,) relevant items of each query in the gallery.

    Returns:
        (R,) float64 in 0..1; NaN for a query without a relevant item.

    Raises:
        UserError: fewer items were retrieved than are relevant.

    Example:
        >>> r_precision(np.array([[0, 1, 0]], np.float32), np.array([2.0]))
        array([0.5])
    """
    hit = _hits(retrieved, relevant)
    return _share(hit.sum(axis=1), relevant)


def map_at_r(retrieved: Float32, relevant: Float64) -> Float64:
    """Mean average precision at R: (1/R) sum over ranks i = 1..R of precision at i where item i is relevant, else 0.

    Unlike R-precision it rewards an early relevant item more than a late one (Musgrave, Belongie, Lim: A Metric
    Learning Reality Check, ECCV 2020). Arguments, result and errors are those of ``r_precision``.

    Example:
        >>> map_at_r(np.array([[0, 1, 0]], np.float32), np.array([2.0]))
        array([0.5])
        >>> map_at_r(np.array([[1, 0, 0]], np.float32), np.array([2.0]))
        array([0.25])
    """
    hit = _hits(retrieved, relevant)
    precision = np.cumsum(hit, axis=1) / np.arange(1, hit.shape[1] + 1)
    return _share((precision * hit).sum(axis=1), relevant)


def _hits(retrieved: Float32, relevant: Float64) -> Float64:
    """1 where one of a query's first R items is relevant, else 0: (R, the largest R)."""
    depth = int(relevant.max(initial=0))
    if depth > retrieved.shape[1]:
        raise UserError(f"A query has {depth} relevant items, but only {retrieved.shape[1]} were retrieved.")
    within = np.arange(depth) < relevant[:, None]
    hit: Float64 = ((retrieved[:, :depth] == 0) & within).astype(np.float64)
    return hit


def _share(total: Float64, relevant: Float64) -> Float64:
    return np.where(relevant > 0, total / np.maximum(relevant, 1), np.nan)
