"""All measures of the rankings of a block of queries, from one block of label distances for all rankers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.retrieval import metrics
from cml.retrieval.evaluate_options import DISTANCE_KS, HIT_KS, HIT_NEIGHBORS, NDCG_KS, EvaluateOptions
from cml.retrieval.metrics import Float32, Float64, Floats, relevance_gains
from cml.retrieval.results import largest_k

_DEFAULTS = {"label_distance": DISTANCE_KS, "ndcg": NDCG_KS, "hit": HIT_KS, "recall": ()}
_HIT_SHARE = 10  # by default Hit@K is measured if the true nearest are at most 1 / this of the gallery


@dataclass(frozen=True)
class Measures:
    """What is measured, as ``evaluate`` takes it."""

    ks: Mapping[str, Sequence[int]]  # of each kind of measure @K; with any recall of classes also MAP@R and R-precision
    hit_neighbors: int
    gain: str
    correlation: bool  # whether rank correlations and H-AP are measured, of whole rankings
    singletons_as_misses: bool
    within: float  # the label distance up to which an item is relevant to Recall@K; 0 for classes

    @classmethod
    def of(cls, options: EvaluateOptions) -> "Measures":
        """The measures that the options name."""
        ks = {
            "label_distance": options.distance_ks,
            "ndcg": options.ndcg_ks,
            "hit": options.hit_ks,
            "recall": options.recall_ks,
        }
        return cls(
            ks,
            options.hit_neighbors,
            options.gain,
            options.whole_ranking,
            options.singletons_as_misses,
            options.recall_within,
        )

    def fitted(self, gallery: int) -> "Measures":
        """The measures with the default K cut to a gallery; ``UserError`` if others do not fit."""

        def checked(name: str, ks: Sequence[int], default: Sequence[int], most: int) -> list[int]:
            if len(ks) and gallery and tuple(ks) == tuple(default):
                return [k for k in ks if k <= most] or [most]
            if any(not 1 <= k <= gallery for k in ks) or len(set(ks)) != len(ks):
                raise UserError(
                    f"Every K of {name!r} must be at least 1 and at most the gallery's {gallery} items, none of them "
                    f"twice. Got {list(ks)} instead."
                )
            return list(ks)

        neighbors = checked("hit_neighbors", [self.hit_neighbors], [HIT_NEIGHBORS], gallery)[0]
        many = tuple(self.ks["hit"]) == HIT_KS and neighbors * _HIT_SHARE > gallery
        wanted = {**self.ks, "hit": ()} if many else self.ks
        fitting = {
            kind: checked(f"{kind.removeprefix('label_')}_ks", ks, _DEFAULTS[kind], largest_k(gallery))
            for kind, ks in wanted.items()
        }
        return replace(self, ks=fitting, hit_neighbors=neighbors)

    @property
    def precision(self) -> bool:
        """Whether MAP@R and R-precision are measured: of classes."""
        return len(self.ks["recall"]) > 0 and self.within == 0

    @property
    def names(self) -> list[str]:
        """The columns of a ``BlockMeasures``."""
        return [
            *(f"{kind}@{k}" for kind, ks in self.ks.items() for k in ks),
            *(["map@r", "r_precision"] if self.precision else []),
            *(["kendall_tau", "spearman_rho", "h_ap"] if self.correlation else []),
        ]

    @property
    def depth(self) -> int:
        """How much of a ranking the measures at K look at."""
        return max([1, *chain.from_iterable(self.ks.values())])


class BlockMeasures:
    """The label distances of a block of queries, and what of them serves all rankers."""

    def __init__(self, measures: Measures, distances: Float32) -> None:
        self.measures = measures
        self.distances = distances  # (R, G)
        self.relevant = (distances <= measures.within).sum(axis=1).astype(np.float64)  # (R,)
        self.depth = max(measures.depth, int(self.relevant.max()) if measures.precision else 1)
        graded = min(10, distances.shape[1]) if measures.correlation else 1  # of graded_gains
        depth = max(self.depth, graded, measures.hit_neighbors if measures.ks["hit"] else 1)
        self.ideal = metrics.retrieved_distances(distances, distances, depth)  # (R, depth)
        self.ideal_gains = relevance_gains(self.ideal[:, : measures.depth], distances, measures.gain)
        if measures.correlation:
            from cml.retrieval.rank_correlation import dense_ranks, graded_gains

            self.ranks = dense_ranks(distances)  # (R, G)
            self.gains = graded_gains(distances, self.ideal)  # (R, G)

    def measure(self, scores: Floats, columns: NDArray[np.int64]) -> Float64:
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
        return np.column_stack([chance, metrics.mean_label_distance(self.ideal, [k])])

    def _top(self, retrieved: Float32, gains: Float64) -> list[Float64]:
        wanted = self.measures
        at: dict[str, Callable[[Sequence[int]], Float64]] = {
            "label_distance": lambda ks: metrics.mean_label_distance(retrieved, ks),
            "ndcg": lambda ks: metrics.ndcg(gains, self.ideal_gains, ks),
            "hit": lambda ks: metrics.hits(retrieved, self.ideal, ks, wanted.hit_neighbors),
            "recall": lambda ks: metrics.recall(
                retrieved, self.relevant, ks, wanted.within, wanted.singletons_as_misses
            ),
        }
        of_classes = (metrics.map_at_r, metrics.r_precision) if wanted.precision else ()
        found = [at[kind](ks) for kind, ks in wanted.ks.items() if ks]
        return found + [one(retrieved, self.relevant)[:, None] for one in of_classes]
