"""All measures of the rankings of a block of queries, from one block of label distances for all rankers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.retrieval.class_metrics import map_at_r, r_precision, recall
from cml.retrieval.metrics import hits, mean_label_distance, ndcg, relevance_gains, retrieved_distances

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Measures:
    """What is measured; every K is at most the size of the gallery.

    Attributes:
        distance_ks: K of the mean label distance of the first K.
        ndcg_ks: K of nDCG.
        hit_ks: K of Hit@K.
        hit_neighbors: How many nearest by label count as hits.
        recall_ks: K of Recall@K; with any of classes, also MAP@R and R-precision.
        gain: Gain of nDCG.
        correlation: Whether rank correlations and H-AP are measured, of whole rankings.
        count_lone: Whether a query that has nothing relevant is a miss of Recall@K, not undefined.
        within: The label distance up to which an item is relevant to Recall@K; 0 for classes.
    """

    distance_ks: Sequence[int]
    ndcg_ks: Sequence[int]
    hit_ks: Sequence[int]
    hit_neighbors: int
    recall_ks: Sequence[int]
    gain: str
    correlation: bool
    count_lone: bool = False
    within: float = 0.0

    @property
    def precision(self) -> bool:
        """Whether MAP@R and R-precision are measured: of classes."""
        return len(self.recall_ks) > 0 and self.within == 0

    @property
    def names(self) -> list[str]:
        """The columns of a ``BlockMeasures``."""
        return [
            *(f"label_distance@{k}" for k in self.distance_ks),
            *(f"ndcg@{k}" for k in self.ndcg_ks),
            *(f"hit@{k}" for k in self.hit_ks),
            *(f"recall@{k}" for k in self.recall_ks),
            *(["map@r", "r_precision"] if self.precision else []),
            *(["kendall_tau", "spearman_rho", "h_ap"] if self.correlation else []),
        ]

    @property
    def depth(self) -> int:
        """How much of a ranking the measures at K look at."""
        return max([1, *self.distance_ks, *self.ndcg_ks, *self.hit_ks, *self.recall_ks])


class BlockMeasures:
    """The label distances of a block of queries, and what of them serves all rankers."""

    def __init__(self, measures: Measures, distances: Float32) -> None:
        self.measures = measures
        self.distances = distances  # (R, G)
        self.relevant = (distances <= measures.within).sum(axis=1).astype(np.float64)  # (R,)
        self.depth = max(measures.depth, int(self.relevant.max()) if measures.precision else 1)
        graded = min(10, distances.shape[1]) if measures.correlation else 1  # of graded_gains
        depth = max(self.depth, graded, measures.hit_neighbors if measures.hit_ks else 1)
        self.ideal = retrieved_distances(distances, distances, depth)  # (R, depth)
        self.ideal_gains = relevance_gains(self.ideal[:, : measures.depth], distances, measures.gain)
        if measures.correlation:
            from cml.retrieval.graded_precision import graded_gains
            from cml.retrieval.rank_correlation import dense_ranks

            self.ranks = dense_ranks(distances)  # (R, G)
            self.gains = graded_gains(distances, self.ideal)  # (R, G)

    def measure(self, scores: NDArray[np.floating[Any]], columns: NDArray[np.int64]) -> Float64:
        """All measures of the rankings by ``scores`` (R, G), whose first items are ``columns`` (R, depth): (R, M)."""
        retrieved = np.take_along_axis(self.distances, columns, axis=1)
        gains = relevance_gains(retrieved[:, : self.measures.depth], self.distances, self.measures.gain)
        found = self._top(retrieved, gains)
        if self.measures.correlation:
            from cml.retrieval.rank_correlation import rank_correlations

            found += [values[:, None] for values in rank_correlations(scores, self.ranks, self.gains)]
        return np.concatenate(found, axis=1)

    def measure_oracle(self) -> Float64:
        """All measures of the ranking by label distance: (R, M)."""
        columns = self._top(self.ideal[:, : self.depth], self.ideal_gains)
        if self.measures.correlation:
            perfect = np.where(self.ranks.max(axis=1) > 0, 1.0, np.nan)[:, None]  # a constant row has no correlation
            columns += [perfect, perfect, np.where(np.isfinite(self.ideal[:, :1]), 1.0, np.nan)]
        return np.concatenate(columns, axis=1)

    def bounds(self, k: int) -> Float64:
        """Mean label distance of the first k of a random ranking, in expectation, and of the oracle: (R, 2)."""
        finite = np.isfinite(self.distances)
        totals = np.where(finite, self.distances, 0).sum(axis=1, dtype=np.float64)
        counts = finite.sum(axis=1)
        chance = np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)
        return np.column_stack([chance, mean_label_distance(self.ideal, [k])])

    def _top(self, retrieved: Float32, gains: Float64) -> list[Float64]:
        wanted = self.measures
        found = []
        if wanted.distance_ks:
            found.append(mean_label_distance(retrieved, wanted.distance_ks))
        if wanted.ndcg_ks:
            found.append(ndcg(gains, self.ideal_gains, wanted.ndcg_ks))
        if wanted.hit_ks:
            found.append(hits(retrieved, self.ideal, wanted.hit_ks, wanted.hit_neighbors))
        if wanted.recall_ks:
            within, lone = wanted.within, wanted.count_lone
            found.append(recall(retrieved, self.relevant, wanted.recall_ks, within=within, count_lone=lone))
        if wanted.precision:
            found += [measure(retrieved, self.relevant)[:, None] for measure in (map_at_r, r_precision)]
        return found
