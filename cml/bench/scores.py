"""Scores of retrieval, each a function of ranks and label distances alone, so that anybody can compute them again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cml.distances.label_distance import Float32
from cml.retrieval.metrics.h_ap import compute_h_ap
from cml.retrieval.metrics.label_distance import compute_label_distance
from cml.retrieval.metrics.ndcg import compute_ndcg
from cml.retrieval.metrics.score import over_mean, score_terms
from cml.retrieval.metrics.spearman_rho import compute_spearman_rho
from cml.retrieval.ranker import Ranker
from cml.retrieval.ranking import retrieved_distances
from cml.retrieval.ranking_ties import rank_columns
from cml.retrieval.relevance_gains import compute_gains
from cml.storage.npz import ArraySpec

Float64 = NDArray[np.float64]

DEPTH = 100  # items of each ranking that are kept
PROBES = 32  # items whose whole order is kept
FIRST = 10  # items whose mean label distance is the primary score
PRIMARY = "score"
SCORES = frozenset({"score", "label_distance", "ndcg", "h_ap", "spearman", "worst"})
"""The names of the scores that every result has, see ``score_queries``."""
_RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Ranks:
    """What the S final runs of a method retrieved for Q queries among G items."""

    top: NDArray[np.uint16]  # (S, Q, K) the first items, nearest first; K is 100, or a quarter of a small gallery
    probe: NDArray[np.uint8]  # (S, Q, P) the order of the gallery's first 32 items, which hashes have put there

    @classmethod
    def from_rankers(cls, runs: list[Ranker], queries: int, gallery: int) -> Self:
        """Rank the gallery by each of the rankers, equal scores in random order.

        Args:
            runs: S rankers, one per final run.
            queries: Q.
            gallery: G.

        Returns:
            The ranks of the S runs.
        """
        blocks, probes = [ranker(slice(0, queries)) for ranker in runs], min(PROBES, gallery)
        top = [rank_columns(block, depth(gallery))[0] for block in blocks]
        probe = [rank_columns(np.ascontiguousarray(block[:, :probes]), probes)[0] for block in blocks]
        return cls(np.stack(top).astype(np.uint16), np.stack(probe).astype(np.uint8))

    @classmethod
    def concatenate(cls, runs: Iterable[Self]) -> Self:
        """Those of several runs as one."""
        every = list(runs)
        top = np.concatenate([ranks.top for ranks in every])
        return cls(top, np.concatenate([ranks.probe for ranks in every]))

    @staticmethod
    def specs(seeds: int, queries: int, gallery: int) -> dict[str, ArraySpec]:
        """State the shapes and types of the ranks.

        Args:
            seeds: S, the number of final runs.
            queries: Q.
            gallery: G.

        Returns:
            Name of an array -> its shape and type.
        """
        kept, probes = depth(gallery), min(PROBES, gallery)
        return {
            "top": ArraySpec((seeds, queries, kept), np.dtype(np.uint16)),
            "probe": ArraySpec((seeds, queries, probes), np.dtype(np.uint8)),
        }

    def fault(self, gallery: int) -> str:
        """Find a fault in the items of the ranks.

        Args:
            gallery: G.

        Returns:
            The fault, as a clause of a message; "" if there is none.
        """
        for name, order, items in (("top", self.top, gallery), ("probe", self.probe, min(PROBES, gallery))):
            rising = np.sort(order, axis=2)
            if (rising[:, :, 1:] == rising[:, :, :-1]).any():
                return f"{name} ranks an item twice"
            if rising.max() >= items:
                return f"{name} ranks the item {rising.max()}, but there are only {items}"
        return ""


def depth(gallery: int) -> int:
    """How many items of a ranking are kept."""
    return min(DEPTH, max(FIRST, gallery // 4))


def score_queries(ranks: Ranks, distances: Float32) -> dict[str, Float64]:
    """Each score of each query, (S, Q); its mean over both is the score.

    score: 1 - (d@10 - oracle) / (random - oracle) of mean label distances, 0 for chance and 1 for the order of the
    labels. ndcg: with the gain 1 / (1 + number of nearer items), of the items kept. h_ap: of all items, those that are
    not kept tied at the end. spearman: of the probes. worst: the score of the tenth of the queries with the lowest.
    """
    queries, gallery = distances.shape
    kept = depth(gallery)
    ideal = retrieved_distances(distances, distances, kept)
    best = compute_label_distance(ideal, [FIRST])[:, 0]
    finite = np.isfinite(distances)
    chance = np.where(finite, distances, 0).sum(axis=1, dtype=np.float64) / np.maximum(finite.sum(axis=1), 1)
    ideal_gains = compute_gains(ideal, distances, "rank")
    runs: list[dict[str, Float64]] = []
    for top, probe in zip(ranks.top.astype(np.int64), ranks.probe.astype(np.int64), strict=True):
        retrieved = np.take_along_axis(distances, top, axis=1)
        ours = compute_label_distance(retrieved, [FIRST])[:, 0]
        score = over_mean(*score_terms(ours, chance, best))
        places = np.full((queries, gallery), float(kept))
        np.put_along_axis(places, top, np.arange(kept, dtype=np.float64)[None], axis=1)
        order = np.empty(probe.shape)
        np.put_along_axis(order, probe, np.arange(probe.shape[1], dtype=np.float64)[None], axis=1)
        worst, lowest = np.full(queries, np.nan), np.argsort(score, kind="stable")[: max(1, queries // 10)]
        worst[lowest] = score[lowest]
        each = {
            "score": score,
            "label_distance": ours,
            "ndcg": compute_ndcg(compute_gains(retrieved, distances, "rank"), ideal_gains, [kept])[:, 0],
            "h_ap": compute_h_ap(places, distances),
            "spearman": compute_spearman_rho(order, np.ascontiguousarray(distances[:, : probe.shape[1]])),
            "worst": worst,
        }
        runs.append(each)
    return {name: np.stack([run[name] for run in runs]) for name in runs[0]}


def summarize(values: Mapping[str, Float64]) -> dict[str, dict[str, Any]]:
    """Mean, 95 % interval over seeds and queries, and the mean of each seed, of every score."""
    summary = {}
    for name, each in values.items():
        has_interval = name != "worst" and np.isfinite(each).any()
        low, high = interval(each) if has_interval else (float("nan"), float("nan"))
        figures = {"mean": _mean(each), "low": low, "high": high}
        seeds = [_plain(_mean(run)) for run in each]
        summary[name] = {**{key: _plain(value) for key, value in figures.items()}, "seeds": seeds}
    return summary


def interval(values: Float64) -> tuple[float, float]:
    """95 % bootstrap interval of the mean of values (S, Q); of a difference of two methods it is the paired one."""
    seeds, queries = values.shape
    rng = np.random.default_rng(0)
    known = np.isfinite(values)
    drawn = [rng.multinomial(many, np.full(many, 1 / many), _RESAMPLES).astype(float) for many in (seeds, queries)]
    totals, counts = (
        np.einsum("rs,rs->r", drawn[0], drawn[1] @ part.T) for part in (np.where(known, values, 0), known.astype(float))
    )
    low, high = np.percentile(totals / np.maximum(counts, 1), [2.5, 97.5]).tolist()
    return low, high


def _mean(values: Float64) -> float:
    """Mean of the values that are not NaN; NaN if there are none."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _plain(value: float) -> float | None:
    """A figure as the files hold it: six digits, null for what does not exist."""
    return None if np.isnan(value) else float(f"{value:.6g}")
