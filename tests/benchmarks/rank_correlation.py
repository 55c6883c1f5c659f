"""Speed of the compiled rank correlations beside the plain NumPy and SciPy way to each of their figures.

Run by hand: ``python tests/benchmarks/rank_correlation.py``. Rows of scores and label distances are drawn, with and
without ties. Each part runs by turns with its plain counterpart in one thread, and the ratio of the medians is printed:
above 1 the compiled part is faster. The figures of both sides are compared first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cml.array_types import Float32, Float64, Int32, Int64
from cml.retrieval import rank_correlation
from cml.retrieval.graded_gains import NEIGHBORS, graded_gains
from cml.retrieval.metrics import compute_h_ap
from cml.retrieval.rank_correlation import dense_ranks, rank_correlations
from cml.retrieval.ranking import retrieved_distances


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1000, help="rows of a block")
    parser.add_argument("--scipy-queries", type=int, default=20, help="rows given to a loop of SciPy over queries")
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args(arguments)
    for levels in (0, 200):
        title = f"{levels} different values" if levels else "no ties"
        print(f"{options.queries} queries x {options.items:,} items, {title}")
        scores, labels = draw_block(options.queries, options.items, levels)
        measure_block(scores, labels, options.scipy_queries, options.repeat)


def measure_block(scores: Float32, labels: Float32, scipy_queries: int, repeat: int) -> None:
    """Print the ratio of each part for one block of queries."""
    few, pair = slice(0, scipy_queries), slice(0, 2)
    ranks = dense_ranks(labels)
    ordered = np.take_along_axis(ranks, plain_order(scores), axis=1)[few]
    compare("dense ranks, argsort", lambda: dense_ranks(labels), lambda: plain_dense_ranks(labels), repeat)
    compare("sort of scores, argsort", lambda: radix_order(scores), lambda: plain_order(scores), repeat)
    compare(
        "tau and rho, SciPy by query",
        lambda: np.stack(rank_correlations(scores[few], ranks[few])[:2]),
        lambda: plain_correlations(scores[few], labels[few]),
        repeat,
    )
    compare("inversions, merge sort", lambda: inversions(ordered), lambda: merge_inversions(ordered), repeat)
    compare(
        "H-AP, all pairs in NumPy",
        lambda: compute_h_ap(scores[pair], labels[pair]),
        lambda: plain_h_ap(scores[pair], labels[pair]),
        min(repeat, 3),
    )


def draw_block(queries: int, items: int, levels: int) -> tuple[Float32, Float32]:
    """Scores and label distances (R, G), correlated; with ``levels`` different values each if that is above 0."""
    rng = np.random.default_rng(0)
    labels = rng.random((queries, items))
    scores = labels + 0.3 * rng.standard_normal(labels.shape)
    if levels:
        labels, scores = np.floor(levels * labels), np.floor(levels * scores / 2)
    return scores.astype(np.float32), labels.astype(np.float32)


def compare(
    name: str, compiled: Callable[[], NDArray[np.generic]], plain: Callable[[], NDArray[np.generic]], repeat: int
) -> None:
    """Print the ratio of the median times of two ways to the same figures, which take turns."""
    np.testing.assert_allclose(compiled().astype(float), plain().astype(float), atol=1e-9)
    seconds: dict[Callable[[], NDArray[np.generic]], list[float]] = {compiled: [], plain: []}
    for _ in range(repeat):
        for compute, taken in seconds.items():
            before = time.process_time()
            compute()
            taken.append(time.process_time() - before)
    ours, theirs = (statistics.median(taken) for taken in seconds.values())
    print(f"  {name}: {theirs / ours:.2f} times as fast ({1000 * ours:.0f} ms and {1000 * theirs:.0f} ms)", flush=True)


def plain_dense_ranks(labels: Float32) -> Int32:
    order = np.argsort(labels, axis=1)
    ordered = np.take_along_axis(labels, order, axis=1)
    steps = np.zeros(labels.shape, np.int32)
    np.cumsum(ordered[:, 1:] != ordered[:, :-1], axis=1, out=steps[:, 1:])
    ranks = np.empty(labels.shape, np.int32)
    np.put_along_axis(ranks, order, steps, axis=1)
    ranks[~np.isfinite(labels)] = -1
    return ranks


def plain_order(scores: Float32) -> Int64:
    return np.argsort(scores, axis=1, kind="stable")


def radix_order(scores: Float32) -> Int64:
    """The stable order of scores by the sort of the compiled part."""
    found = np.empty(scores.shape, np.int64)
    bits = np.ascontiguousarray(scores, np.float64).view(np.uint64)
    size = scores.shape[1]
    spare_keys, spare_columns = np.empty(size, np.uint64), np.empty(size, np.int32)
    counts = np.empty((rank_correlation._PASSES, rank_correlation._BUCKETS), np.int32)
    sign = np.uint64(1 << 63)
    for row in range(len(scores)):
        keys = np.where(bits[row] == sign, sign, np.where(bits[row] & sign, ~bits[row], bits[row] | sign))
        columns = np.arange(size, dtype=np.int32)
        found[row] = rank_correlation._sort(keys, columns, spare_keys, spare_columns, size, counts)[1]
    return found


def plain_correlations(scores: Float32, labels: Float32) -> Float64:
    rows = zip(scores, labels, strict=True)
    return np.array([[function(*row).statistic for function in (stats.kendalltau, stats.spearmanr)] for row in rows]).T


def inversions(ranks: Int32) -> Int64:
    """Discordant pairs of each row by the compiled part."""
    counts = np.empty(ranks.shape[1] + 1, np.int32)
    return np.array([rank_correlation._inversions(row, len(row), int(row.max()), counts) for row in ranks])


def merge_inversions(ranks: Int32) -> Int64:
    """Discordant pairs of each row by a merge sort in NumPy, bottom up, all rows at once.

    Each step sorts pairs of neighbouring runs of equal length stably; how far the items of the right run move left is
    the number of pairs that were in the wrong order.
    """
    queries, items = ranks.shape
    width, length = 1, 1 << (items - 1).bit_length()
    padded = np.full((queries, length), np.iinfo(np.int32).max, np.int32)
    padded[:, :items] = ranks
    total = np.zeros(queries, np.int64)
    while width < length:
        runs = padded.reshape(queries, -1, 2 * width)
        order = np.argsort(runs, axis=2, kind="stable")
        moved = order - np.arange(2 * width)
        total += np.where(order >= width, moved, 0).sum(axis=(1, 2))
        padded = np.take_along_axis(runs, order, axis=2).reshape(queries, length)
        width *= 2
    return total


def plain_h_ap(scores: Float32, labels: Float32) -> Float64:
    """H-AP from all pairs of items of each query, as the mean over all orders of items with equal scores."""
    nearest = retrieved_distances(labels, labels, NEIGHBORS)
    values = []
    for score, gain in zip(scores, graded_gains(labels, nearest), strict=True):
        _, starts, counts = np.unique(score, return_inverse=True, return_counts=True)
        first = np.cumsum(counts) - counts
        less = np.minimum(gain[:, None], gain[None, :])  # (G, G)
        before = np.where(starts[None, :] < starts[:, None], less, 0).sum(axis=1)
        tied = np.where(starts[None, :] == starts[:, None], less, 0).sum(axis=1) - gain
        weights, slopes = [], []
        for start, count in zip(first, counts, strict=True):
            ranks = np.arange(start + 1, start + count + 1)
            weights.append((1 / ranks).mean())
            slopes.append(((ranks - start - 1) / ranks).mean() / max(count - 1, 1))
        total = np.array(weights)[starts] * (gain + before) + np.array(slopes)[starts] * tied
        values.append(total.sum() / gain.sum())
    return np.array(values)


if __name__ == "__main__":
    main()
