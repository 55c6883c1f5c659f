"""Scores of retrieval, each a function of ranks and label distances alone, so that anybody can compute them again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from cml.array_types import Float32, Float64, UInt8, UInt16
from cml.retrieval.mean_interval import mean_intervals, ratio_intervals
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

DEPTH = 100  # items of each ranking that are kept
PROBES = 32  # items whose whole order is kept
FIRST = 10  # items whose mean label distance is the primary score
PRIMARY = "score"
SCORES = frozenset({"score", "label_distance", "ndcg", "h_ap", "spearman", "worst"})
"""The names of the scores that every result has, see ``score_queries``."""
Intervals = Literal["bootstrap", "skew-t"]
"""How 95 % intervals were computed: by earlier versions of cml, whose files do not name it, and today."""
_RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class Ranks:
    """What the S final runs of a method retrieved for Q queries among G items."""

    top: UInt16  # (S, Q, K) the first items, nearest first; K is 100, or a quarter of a small gallery
    probe: UInt8  # (S, Q, P) the order of the gallery's first 32 items, which hashes have put there

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
    chance, best = _chance(distances), _best(ideal)
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


def score_reaches(distances: Float32) -> Float64:
    """What the oracle is ahead of chance in each query, over its mean: the score of each query of the oracle.

    Args:
        distances: (Q, G) label distances.

    Returns:
        (Q,) denominators of the score, of mean 1; NaN for a query without one.
    """
    best = _best(retrieved_distances(distances, distances, depth(distances.shape[1])))
    return over_mean(*score_terms(best, _chance(distances), best))


def summarize(
    values: Mapping[str, Float64], reaches: Float64, *, intervals: Intervals = "skew-t"
) -> dict[str, dict[str, Any]]:
    """Mean, 95 % interval over seeds and queries, and the mean of each seed, of every score.

    Args:
        values: Name of a score to its values, (S, Q).
        reaches: (Q,) denominators of the primary score, which is a ratio of two means; see ``score_reaches``.
        intervals: How intervals are computed.

    Returns:
        Name of a score to its figures.
    """
    summary = {}
    for name, each in values.items():
        has_interval = name != "worst" and np.isfinite(each).any()
        low, high = float("nan"), float("nan")
        if has_interval and intervals == "bootstrap":
            low, high = _bootstrap_interval(each)
        elif has_interval:
            low, high = interval(each, reaches if name == PRIMARY else None)
        figures = {"mean": _mean(each), "low": low, "high": high}
        seeds = [_plain(_mean(run)) for run in each]
        summary[name] = {**{key: _plain(value) for key, value in figures.items()}, "seeds": seeds}
    return summary


def interval(values: Float64, reaches: Float64 | None = None) -> tuple[float, float]:
    """95 % interval of a mean over seeds and queries; of a difference of two methods it is the paired one.

    Args:
        values: (S, Q) values.
        reaches: (Q,) denominators, if the mean of the values is a ratio of two means; see ``score_reaches``.

    Returns:
        The ends; NaN for one value.
    """
    columns = values[:, :, None]
    ends = mean_intervals(columns) if reaches is None else ratio_intervals(columns, reaches[:, None])
    low, high = ends[0].tolist()
    return low, high


def _chance(distances: Float32) -> Float64:
    """Mean label distance of all items to each query, (Q,)."""
    finite = np.isfinite(distances)
    total = np.where(finite, distances, 0).sum(axis=1, dtype=np.float64)
    mean: Float64 = total / np.maximum(finite.sum(axis=1), 1)
    return mean


def _best(ideal: Float32) -> Float64:
    """Mean label distance of the first ten of the nearest items, (Q,)."""
    return compute_label_distance(ideal, [FIRST])[:, 0]


def _bootstrap_interval(values: Float64) -> tuple[float, float]:
    """The interval of earlier versions, a percentile bootstrap of seeds and queries: to check their files."""
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
