"""Items as embeddings see them, and where they agree with the labels: in O(N) blocks of distances."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cml.array_types import Float32, Int64
from cml.explore.label_side import SPACE, LabelSide, row_blocks
from cml.explore.maps import MAPS, align_map, principal

NEAREST = 10  # neighbours that are shown
_WORST = 30  # pairs of each kind of disagreement


@dataclass(frozen=True)
class View:
    """N items as one embedding sees them."""

    title: str  # title of its tab
    maps: Mapping[str, Float32]  # title to map (N, 2), aligned with the labels' own
    points: Float32  # (N, SPACE) points whose distances are near those of the embeddings
    ids: Int64  # (N, k) nearest items by embedding
    near: Float32  # (N, k) embedding distances to them
    near_labels: Float32  # (N, k) label distances to them
    near_ranks: Int64  # (N, k) their ranks by label distance
    label_near: Float32  # (N, k) embedding distances to the items that are nearest by label
    label_ranks: Int64  # (N, k) their ranks by embedding distance
    between: Float32  # (P,) embedding distances of the pairs of ``LabelSide``
    agreement: float  # Spearman's rank correlation of these with the label distances
    stages: Mapping[int, Float32]  # training step to the principal map (N, 2) at that step, where models were kept

    def error(self, side: LabelSide) -> Float32:
        """Mean excess (N,) of the label distances of an item's neighbours over those of its nearest by label."""
        possible = side.nearest.distances[:, : self.ids.shape[1]]
        comparable = np.isfinite(possible) & np.isfinite(self.near_labels)
        gap = np.where(comparable, self.near_labels - np.where(comparable, possible, 0), 0).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(gap / comparable.sum(axis=1), np.float32)

    def worst(self, side: LabelSide) -> tuple[Int64, Int64]:
        """Pairs (W, 2) that are near by embedding and far by label, and pairs the other way round."""
        label_ids = side.nearest.ids[:, : self.ids.shape[1]].astype(np.int64)
        return _worst_pairs(self.ids, self.near_ranks), _worst_pairs(label_ids, self.label_ranks)


def build_embedding_view(
    title: str,
    embeddings: Float32,  # (N, D) of the items
    side: LabelSide,
    maps: Sequence[str],  # names of maps to draw, of ``cml.explore.maps.MAPS``
    *,
    stages: Mapping[int, Float32] | None = None,  # training step to embeddings (N, D) at that step; None for no stages
    seed: int = 0,
) -> View:
    """Compute what the explorer shows of an embedding."""
    from cml.retrieval.embedding_ranker import embedding_ranker
    from cml.retrieval.ranking import rank_columns

    n, k = len(side), min(NEAREST, len(side) - 1)
    ranker = embedding_ranker(embeddings, embeddings)
    label_ids = side.nearest.ids[:, :k].clip(min=0)
    ids, near = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    label_near, label_ranks = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for rows in row_blocks(n, f"neighbours, {title}"):
        scores = ranker(rows)
        scores[np.arange(len(scores)), np.arange(rows.start, rows.stop)] = np.inf  # an item is no neighbour of itself
        ids[rows] = rank_columns(scores, k, first=rows.start)[0]
        near[rows] = np.sqrt(np.take_along_axis(scores, ids[rows], axis=1))
        label_scores = np.take_along_axis(scores, label_ids[rows], axis=1)
        label_near[rows] = np.sqrt(label_scores)
        for place in range(k):
            label_ranks[rows, place] = 1 + (scores < label_scores[:, place, None]).sum(axis=1)
    near_labels = side.distances_to(ids)
    between = np.linalg.norm(embeddings[side.pairs[:, 0]] - embeddings[side.pairs[:, 1]], axis=1).astype(np.float32)
    label_map = side.points[:, :2]
    return View(
        title=title,
        maps=_draw_maps(embeddings, side, maps, seed),
        points=principal(embeddings, SPACE),
        ids=ids,
        near=near,
        near_labels=near_labels,
        near_ranks=side.ranks(near_labels),
        label_near=label_near,
        label_ranks=label_ranks,
        between=between,
        agreement=_spearman(between, side.between),
        stages={step: align_map(principal(points, 2), label_map) for step, points in (stages or {}).items()},
    )


def build_oracle_view(
    side: LabelSide,
    maps: Sequence[str],  # names of maps to draw, of ``cml.explore.maps.MAPS``
    *,
    seed: int = 0,
) -> View:
    """Compute what a perfect embedding would show: the labels themselves."""
    k = min(NEAREST, len(side) - 1)
    near = side.nearest.distances[:, :k]
    ranks = side.ranks(near)
    return View(
        title="oracle (the labels)",
        maps=_draw_maps(side.points, side, maps, seed),
        points=side.points,
        ids=side.nearest.ids[:, :k].clip(min=0).astype(np.int64),
        near=near,
        near_labels=near,
        near_ranks=ranks,
        label_near=near,
        label_ranks=ranks,
        between=side.between,
        agreement=1.0,
        stages={},
    )


def _draw_maps(points: Float32, side: LabelSide, names: Sequence[str], seed: int) -> dict[str, Float32]:
    label_map = side.points[:, :2]
    return {MAPS[name].title: align_map(MAPS[name].draw(points, seed), label_map) for name in names}


def _spearman(a: Float32, b: Float32) -> float:
    """Spearman's rank correlation; NaN if all numbers of a side are equal."""
    from scipy.stats import spearmanr

    if len(a) < 2 or not np.ptp(a) > 0 or not np.ptp(b) > 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _worst_pairs(ids: Int64, ranks: Int64) -> Int64:
    """The pairs of an item and one of its first five with the largest ranks; an item is in two of them at most."""
    first = min(5, ids.shape[1])
    order = np.argsort(-ranks[:, :first], axis=None, kind="stable")[: 40 * _WORST]
    uses: dict[int, int] = {}  # item to the number of its pairs
    pairs: list[tuple[int, int]] = []
    for row, place in zip(*np.unravel_index(order, (len(ids), first)), strict=True):
        item, other = int(row), int(ids[row, place])
        if max(uses.get(item, 0), uses.get(other, 0)) >= 2 or (other, item) in pairs or len(pairs) == _WORST:
            continue
        pairs.append((item, other))
        uses[item] = uses.get(item, 0) + 1
        uses[other] = uses.get(other, 0) + 1
    return np.array(pairs, np.int64).reshape(-1, 2)
