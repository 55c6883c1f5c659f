"""What metrics measure: the label distances of a block of queries, and a ranking of the gallery for each of them.

Whatever serves several metrics or several rankers is computed once, when it is first asked for.

Items with the same score are taken in random order: in the order of a gallery that is sorted by label, a constant
embedding could score like the best or the worst. Where label distances are unknown, a condensed list leaves these items
out (Sakai, Alternatives to Bpref, SIGIR 2007): in a ranking of all items, they take the first places of most queries
where few distances are known, and no metric can tell whether they are near.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import Protocol

import numpy as np

from cml.array_types import Bools, Float32, Float64, Floating, Int32, Int64
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.retrieval.gains import compute_gains, graded_gains
from cml.retrieval.item_influences import Effects


class LooksAt(Protocol):
    """What a metric says of the part of a ranking that it looks at, see ``cml.retrieval.metrics.Metric``."""

    def depth(self, labels: LabelBlock) -> int:
        """How many of the first items of each ranking."""

    def nearest_depth(self, labels: LabelBlock) -> int:
        """How many of the nearest items by label distance."""


class LabelBlock:
    """The label distances of a block of R queries to a gallery of G items, which serve all rankers."""

    def __init__(self, distances: Float32, metrics: Sequence[LooksAt]) -> None:
        from cml.retrieval.top_k import top_columns

        self.distances = distances  # (R, G) label distances
        self._relevant: dict[float, Float64] = {}
        self._ideal_gains: dict[tuple[str, int], Float64] = {}
        # how many of the first items of each ranking are looked at
        self.depth = max((metric.depth(self) for metric in metrics), default=1)
        nearest = max((metric.nearest_depth(self) for metric in metrics), default=1)
        # the first item behind a list moves up where an item of the list is left out
        # (R, > depth) positions of the nearest items by label, one more than is looked at if there are more
        self.nearest = top_columns(distances, min(max(self.depth, nearest) + 1, distances.shape[1]))
        self.ideal = np.take_along_axis(distances, self.nearest, axis=1)  # (R, > depth) their label distances, rising

    def count_relevant(self, within: float) -> Float64:  # (R,) float64
        """The number of items within a label distance of each query."""
        if within not in self._relevant:
            self._relevant[within] = (self.distances <= within).sum(axis=1).astype(np.float64)
        return self._relevant[within]

    @property
    def oracle(self) -> Ranking:
        """The ranking by label distance; it is not kept, as a circle of references would keep the block in memory."""
        first = slice(self.depth + 1)
        return Ranking(self, self.distances, self.ideal[:, first], self.nearest[:, first])

    def select(self, rows: Int64) -> LabelBlock:
        """The label distances of some of the queries, for what whole rankings need of them."""
        some = copy(self)
        for name in ("distances", "nearest", "ideal"):
            setattr(some, name, getattr(self, name)[rows])
        for name in ("ranks", "graded_gains"):
            vars(some)[name] = getattr(self, name)[rows]
        for name in ("perfect_correlation", "chance"):
            vars(some).pop(name, None)
        some._relevant, some._ideal_gains = {}, {}
        return some

    def ideal_gains(
        self,
        gain: str,  # a name in ``cml.retrieval.gains.GAINS``
        depth: int,
    ) -> Float64:  # (R, depth) float64
        """Gains of nDCG of the nearest items."""
        if (gain, depth) not in self._ideal_gains:
            self._ideal_gains[gain, depth] = compute_gains(self.ideal[:, :depth], self.distances, gain)
        return self._ideal_gains[gain, depth]

    @cached_property
    def ranks(self) -> Int32:
        """Rank of each item among the different label distances of its query, (R, G); -1 if it cannot be compared."""
        from cml.retrieval.rank_correlation import dense_ranks

        return dense_ranks(self.distances)

    @cached_property
    def graded_gains(self) -> Float64:
        """Gains of H-AP of each item, (R, G)."""
        return graded_gains(self.distances, self.ideal)

    @cached_property
    def perfect_correlation(self) -> Float64:
        """1, or NaN for a query whose label distances are all the same: (R,)."""
        return np.where(self.ranks.max(axis=1) > 0, 1.0, np.nan)

    @cached_property
    def chance(self) -> Float64:
        """Mean label distance of all items that can be compared, (R,): what a random ranking has in expectation."""
        finite = np.isfinite(self.distances)
        totals = np.where(finite, self.distances.astype(np.float64), 0).sum(axis=1)
        counts = finite.sum(axis=1)
        chance: Float64 = np.divide(totals, counts, out=np.full(len(totals), np.nan), where=counts > 0)
        return chance


class Ranking:
    """A ranking of the gallery for each of R queries, by one ranker."""

    def __init__(self, labels: LabelBlock, scores: Floating, retrieved: Float32, items: Int64 | None = None) -> None:
        self.labels = labels  # the label distances of these queries
        self.scores = scores  # (R, G) by which the gallery is ranked, rising
        self.retrieved = retrieved  # (R, > depth) label distances of the first items, in the order retrieved
        self._items = items
        self._gains: dict[tuple[str, int], Float64] = {}

    @classmethod
    def from_columns(
        cls,
        labels: LabelBlock,
        scores: Floating,  # (R, G) by which the gallery is ranked, rising
        columns: Int64,  # (R, > depth) positions of the first items in the gallery, in the order retrieved
    ) -> Ranking:
        """Build the ranking whose first items are known."""
        return cls(labels, scores, np.take_along_axis(labels.distances, columns, axis=1), columns)

    @property
    def items(self) -> Int64:
        """Positions of the first items in the gallery, (R, > depth): one more than metrics look at, if there is."""
        if self._items is None:
            raise UserError("The ranking was made without the positions of its items: Ranking.from_columns has them.")
        return self._items

    def gains(
        self,
        gain: str,  # a name in ``cml.retrieval.gains.GAINS``
        depth: int,
    ) -> Float64:  # (R, depth) float64
        """Gains of nDCG of the first items."""
        if (gain, depth) not in self._gains:
            self._gains[gain, depth] = compute_gains(self.retrieved[:, :depth], self.labels.distances, gain)
        return self._gains[gain, depth]

    @cached_property
    def correlations(self) -> tuple[Float64, Float64, Float64]:
        """Kendall's tau-b, Spearman's rho and H-AP of the whole ranking, (R,) each; they share one sort."""
        from cml.retrieval.rank_correlation import rank_correlations

        return rank_correlations(self.scores, self.labels.ranks, self.labels.graded_gains)

    def select(self, rows: Int64) -> Ranking:
        """The rankings of some of the queries."""
        return Ranking(self.labels.select(rows), self.scores[rows], self.retrieved[rows], self.items[rows])

    def correlation_effects(self, column: int) -> Effects:
        """Effects of all items on one of ``correlations``."""
        items, changes = self._correlation_effects
        return Effects(items, changes[:, :, column, None])

    @cached_property
    def _correlation_effects(self) -> Effects:
        from cml.retrieval.rank_effects import rank_effects

        changes = rank_effects(self.scores, self.labels.ranks, self.labels.graded_gains)
        return Effects(np.broadcast_to(np.arange(changes.shape[1]), changes.shape[:2]), changes)

    @cached_property
    def class_effects(self) -> tuple[Effects, Effects]:
        """Effects on MAP@R and on R-precision."""
        from cml.retrieval.list_effects import class_changes

        labels, relevant = self.labels, self.labels.count_relevant(0)
        changes = class_changes(self.retrieved, self.items, labels.nearest, relevant, labels.distances.shape[1])
        depth = changes[0].shape[1] // 2
        items = np.concatenate([self.items[:, :depth], labels.nearest[:, :depth]], axis=1)
        return Effects(items, changes[0]), Effects(items, changes[1])


def retrieved_distances(
    label_distances: Float32,  # (R, G) label distances, infinite where two labels cannot be compared
    scores: Floating,  # (R, G) without NaN; the gallery is ranked by rising score, ties by the lower column
    k: int,
) -> Float32:  # (R, k) label distances in the order retrieved. ``retrieved_distances(d, d, k)`` is the ideal order
    """Label distances of the first k items of each ranking.

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


def rank_columns(
    scores: Floating,  # (R, G) without NaN
    k: int,
    *,
    first: int = 0,
    seed: int = 0,
    next_too: bool = False,
) -> tuple[Int64, Bools]:  # columns (R, k), and which rows (R,) have a tie among the first k or at their end
    """The columns of the k smallest scores of each row, items with the same score in random order."""
    from cml.retrieval.top_k import top_columns

    columns = top_columns(scores, min(k + 1, scores.shape[1]))
    smallest = np.take_along_axis(scores, columns, axis=1)
    tied: Bools = (smallest[:, 1:] == smallest[:, :-1]).any(axis=1)
    for row in np.flatnonzero(tied).tolist():
        shuffled = np.random.default_rng((seed, first + row)).permutation(scores.shape[1])
        columns[row] = shuffled[top_columns(scores[row : row + 1, shuffled], columns.shape[1])[0]]
    return columns if next_too else columns[:, :k], tied


def mask_own_column(
    block: Floating,  # (R, G) distances of the queries in ``rows`` to all items
    rows: slice,
) -> None:
    """Set the distance of each query to itself to infinity, in place."""
    block[np.arange(len(block)), np.arange(rows.start, rows.stop)] = np.inf


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
