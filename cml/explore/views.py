"""Where an embedding and labels agree, and where not: O(N) blocks of distances, of labels those to landmarks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.distances.label_distance import LabelDistance, Neighbors
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.explore.maps import MAPS, landmark_mds, principal, turned_to

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Columns = dict[str, tuple[NDArray[Any], float | None]]

NEAREST = 10  # neighbours that are shown
DEPTH = 50  # label neighbours whose rank is known exactly where there are more items than landmarks
ALL_LANDMARKS, LANDMARKS = 2000, 500  # up to so many items all are landmarks; else so many, drawn at random
SPACE = 32  # dimensions in which the page measures distances from any item, near the true ones
_PAIRS = 3000  # of the diagram
_WORST = 30  # of each kind
_BLOCK = 256  # items whose distances are held at a time


@dataclass(frozen=True)
class LabelSide:
    """N items as their labels see them, in the unit of the label distance."""

    distance: LabelDistance
    labels: Labels
    nearest: Neighbors  # of each, up to ``DEPTH``
    landmarks: Int64  # (m,) items
    to_landmarks: Float32  # (N, m) label distances
    points: Float32  # (N, SPACE) points whose distances are near the label distances; the first two are the map
    pairs: Int64  # (P, 2) items to compare, of which the second is a landmark
    between: Float32  # (P,) their label distances

    def __len__(self) -> int:
        return len(self.labels)

    def distances_to(self, ids: Int64) -> Float32:
        """Label distances (N, k) of each item to the k of ``ids`` (N, k)."""
        if len(self.landmarks) == len(self):
            return np.asarray(np.take_along_axis(self.to_landmarks, ids, axis=1), np.float32)
        found = np.empty(ids.shape, np.float32)
        for row, others in enumerate(ProgressBar(ids, "label distances of neighbours", unit="item", delay=BAR_DELAY)):
            found[row] = self.distance.pairwise(self.labels[row : row + 1], self.labels[others])[0]
        return found

    def ranks(self, distances: Float32) -> Int64:
        """The rank, from 1, of label distances (N, k) among all of an item: exact for the nearest, else estimated."""
        n, m = self.to_landmarks.shape
        own = np.zeros(n, np.int64)
        own[self.landmarks] = 1
        sorted_landmarks = np.sort(self.to_landmarks, axis=1)
        ranks = np.empty(distances.shape, np.int64)
        for row in range(n):
            nearer = np.searchsorted(sorted_landmarks[row], distances[row]) - own[row] * (distances[row] > 0)
            exact = 1 + np.searchsorted(self.nearest.distances[row], distances[row])
            known = exact <= self.nearest.distances.shape[1]
            told = 1 + np.rint(nearer * ((n - 1) / max(1, m - own[row]))).astype(np.int64)
            ranks[row] = np.where(known, exact, np.maximum(told, exact))
        return np.asarray(np.minimum(ranks, n - 1), np.int64)


@dataclass(frozen=True)
class View:
    """N items as one embedding sees them."""

    title: str
    maps: Mapping[str, Float32]  # title to the map (N, 2), turned to the labels' own
    points: Float32  # (N, SPACE) points whose distances are near those of the embeddings
    ids: Int64  # (N, k) nearest items by embedding
    near: Float32  # (N, k) embedding distances to them
    near_labels: Float32  # (N, k) label distances to them
    near_ranks: Int64  # (N, k) their ranks by label distance
    label_near: Float32  # (N, k) embedding distances to the items that are nearest by label
    label_ranks: Int64  # (N, k) their ranks by embedding distance
    between: Float32  # (P,) embedding distances of the pairs of ``LabelSide``
    agreement: float  # Spearman's rank correlation of these with their label distances
    stages: Mapping[int, Float32]  # training step to the principal map (N, 2) at that step, where checkpoints were kept

    def error(self, side: LabelSide) -> Float32:
        """How much farther by label the neighbours lie than the nearest possible, the mean of each item (N,)."""
        possible = side.nearest.distances[:, : self.ids.shape[1]]
        both = np.isfinite(possible) & np.isfinite(self.near_labels)
        gap = np.where(both, self.near_labels - np.where(both, possible, 0), 0).sum(axis=1)
        with np.errstate(invalid="ignore"):
            return np.asarray(gap / both.sum(axis=1), np.float32)

    def worst(self, side: LabelSide) -> tuple[Int64, Int64]:
        """Pairs (W, 2) that lie together in the embedding and are far by label, and pairs the other way round."""
        label_ids = side.nearest.ids[:, : self.ids.shape[1]].astype(np.int64)
        return _worst(self.ids, self.near_ranks), _worst(label_ids, self.label_ranks)


def label_side(
    distance: LabelDistance, labels: Labels, *, held_out: NDArray[np.bool_] | None = None, seed: int = 0
) -> LabelSide:
    """Look at N items through their label distance; pairs are of the items ``held_out`` (N,), if they are enough."""
    n = len(labels)
    if n < 4:
        raise UserError(f"There should be at least 4 items to explore. Got {n} instead.")
    rng = np.random.default_rng(seed)
    landmarks = np.arange(n) if n <= ALL_LANDMARKS else np.sort(rng.choice(n, LANDMARKS, replace=False))
    to_landmarks = np.empty((n, len(landmarks)), np.float32)
    among = labels[landmarks]
    for rows in _blocks(n, "label distances"):
        to_landmarks[rows] = distance.pairwise(labels[rows], among)
    with ProgressBar(total=n, desc="nearest labels", unit="item", delay=BAR_DELAY) as bar:
        nearest = distance.neighbors(labels, min(DEPTH, n - 1), progress=bar.update)
    points = landmark_mds(to_landmarks, landmarks, min(SPACE, len(landmarks)))
    pairs, between = _pairs(to_landmarks, landmarks, held_out, rng)
    return LabelSide(distance, labels, nearest, landmarks, to_landmarks, points, pairs, between)


def _blocks(n: int, title: str) -> Iterator[slice]:
    """Rows, a block at a time, with a progress bar."""
    with ProgressBar(total=n, desc=title, unit="item", delay=BAR_DELAY) as bar:
        for start in range(0, n, _BLOCK):
            yield slice(start, stop := min(start + _BLOCK, n))
            bar.update(stop - start)


def _pairs(
    to_landmarks: Float32, landmarks: Int64, held_out: NDArray[np.bool_] | None, rng: np.random.Generator
) -> tuple[Int64, Float32]:
    n = len(to_landmarks)
    some = np.ones(n, bool) if held_out is None else held_out
    columns = np.flatnonzero(some[landmarks])
    if len(columns) < min(50, n - 1):  # too few to tell anything
        some, columns = np.ones(n, bool), np.arange(len(landmarks))
    rows, chosen = rng.choice(np.flatnonzero(some), 2 * _PAIRS), rng.choice(columns, 2 * _PAIRS)
    ordered = np.sort(np.stack([rows, landmarks[chosen]], axis=1), axis=1)
    _, first = np.unique(ordered, axis=0, return_index=True)
    first.sort()
    fit = np.isfinite(to_landmarks[rows, chosen]) & (rows != landmarks[chosen])
    kept = first[fit[first]][:_PAIRS]
    return np.stack([rows[kept], landmarks[chosen[kept]]], axis=1), to_landmarks[rows[kept], chosen[kept]]


def embedding_view(
    title: str,
    embeddings: Float32,
    side: LabelSide,
    maps: Sequence[str],
    *,
    stages: Mapping[int, Float32] | None = None,
    seed: int = 0,
) -> View:
    """Look at items through an embedding (N, D) of them, with maps by name; ``stages`` are those of training steps."""
    from cml.retrieval.rankers import embedding_ranker, ranked_columns

    n, k = len(side), min(NEAREST, len(side) - 1)
    ranker = embedding_ranker(embeddings, embeddings)
    label_ids = side.nearest.ids[:, :k].clip(min=0)
    ids, near = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    label_near, label_ranks = np.empty((n, k), np.float32), np.empty((n, k), np.int64)
    for rows in _blocks(n, f"neighbours, {title}"):
        scores = ranker(rows)
        scores[np.arange(len(scores)), np.arange(rows.start, rows.stop)] = np.inf
        ids[rows] = ranked_columns(scores, k, first=rows.start)[0]
        near[rows] = np.sqrt(np.take_along_axis(scores, ids[rows], axis=1))
        theirs = np.take_along_axis(scores, label_ids[rows], axis=1)
        label_near[rows] = np.sqrt(theirs)
        for place in range(k):
            label_ranks[rows, place] = 1 + (scores < theirs[:, place, None]).sum(axis=1)
    near_labels = side.distances_to(ids)
    between = np.linalg.norm(embeddings[side.pairs[:, 0]] - embeddings[side.pairs[:, 1]], axis=1).astype(np.float32)
    early = {step: turned_to(principal(points, 2), side.points[:, :2]) for step, points in (stages or {}).items()}
    return View(
        title, _maps(embeddings, side, maps, seed), principal(embeddings, SPACE), ids, near, near_labels,
        side.ranks(near_labels), label_near, label_ranks, between, _agreement(between, side.between), early,
    )  # fmt: skip


def oracle_view(side: LabelSide, maps: Sequence[str], *, seed: int = 0) -> View:
    """The labels themselves as an embedding: what a perfect one would show."""
    k, made, title = min(NEAREST, len(side) - 1), _maps(side.points, side, maps, seed), "oracle (the labels)"
    ids, near = side.nearest.ids[:, :k].clip(min=0).astype(np.int64), side.nearest.distances[:, :k]
    ranks = side.ranks(near)
    return View(title, made, side.points, ids, near, near, ranks, near, ranks, side.between, 1.0, {})


def _maps(points: Float32, side: LabelSide, names: Sequence[str], seed: int) -> dict[str, Float32]:
    return {MAPS[name][0]: turned_to(MAPS[name][2](points, seed), side.points[:, :2]) for name in names}


def _agreement(a: Float32, b: Float32) -> float:
    from scipy.stats import spearmanr

    if len(a) < 2 or not np.ptp(a) > 0 or not np.ptp(b) > 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _worst(ids: Int64, ranks: Int64) -> Int64:
    """The pairs of an item and one of its first five with the largest ranks; an item is in two of them at most."""
    first = min(5, ids.shape[1])
    order = np.argsort(-ranks[:, :first], axis=None, kind="stable")[: 40 * _WORST]
    seen: dict[int, int] = {}
    pairs: list[tuple[int, int]] = []
    for row, place in zip(*np.unravel_index(order, (len(ids), first)), strict=True):
        one, other = int(row), int(ids[row, place])
        if max(seen.get(one, 0), seen.get(other, 0)) >= 2 or (other, one) in pairs or len(pairs) == _WORST:
            continue
        pairs.append((one, other))
        seen |= {one: seen.get(one, 0) + 1, other: seen.get(other, 0) + 1}
    return np.array(pairs, np.int64).reshape(-1, 2)


def columns_of(name: str, labels: Sequence[Any], distance: LabelDistance) -> Columns:
    """The columns, and periods, of labels that are numbers, up to 8 of them, texts or dicts of these; else none."""
    from cml.distances import made
    from cml.distances.circular import Circular
    from cml.distances.combined import Combined

    first = labels[0]
    if isinstance(first, Mapping):
        parts = distance.parts if isinstance(distance, Combined) else {}
        found: Columns = {}
        for part in first:
            inner = made(parts[part]) if part in parts else distance
            found |= columns_of(f"{name} {part}", [label.get(part) for label in labels], inner)
        return found
    if all(isinstance(label, str) for label in labels):
        return {name: (np.array(labels, object), None)}
    try:
        values = np.asarray(labels, np.float64)
    except (TypeError, ValueError):
        return {}
    period = float(distance.period) if isinstance(distance, Circular) else None
    if values.ndim == 1:
        return {name: (values, period)}
    if values.ndim == 2 and values.shape[1] <= 8:
        return {f"{name} {place}": (column, period) for place, column in enumerate(values.T, 1)}
    return {}
