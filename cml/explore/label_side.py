"""Items as their labels see them: nearest by label, a map of label distances, ranks, and pairs to compare."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors
from cml.errors import UserError
from cml.explore.maps import landmark_mds

# The pairs of items that the Shepard diagram compares: held-out items alone, as far as there are any.

MOST_PAIRS = 3000
_FEWEST_COLUMNS = 50  # landmarks among the compared items; with fewer, their pairs would share too few items
_MOST_COLUMNS = 500  # items whose label distances to all compared items are computed otherwise


@dataclass(frozen=True)
class ItemPairs:
    """P pairs of items."""

    ids: Int64  # (P, 2) the items of each pair
    distances: Float32  # (P,) their label distances, all finite


def choose_pairs(
    distance: LabelDistance,
    labels: Labels,
    # (N,) the items to compare, which no network was trained on; None for all. Where fewer than two are held out, there
    # is no pair of them, and all items are compared
    held_out: Bools | None,
    landmarks: Int64,  # (m,) items
    to_landmarks: Float32,  # (N, m) label distances of every item to the landmarks
    rng: np.random.Generator,
) -> ItemPairs:
    """Choose the pairs to compare: all of them where they are few, else a random sample."""
    compared = np.arange(len(labels)) if held_out is None else np.flatnonzero(held_out)
    if len(compared) < 2:
        compared = np.arange(len(labels))
    if len(compared) * (len(compared) - 1) // 2 <= MOST_PAIRS:
        block = distance.pairwise(labels[compared], labels[compared])
        rows, columns = np.triu_indices(len(compared), 1)
        return _finite(compared[rows], compared[columns], block[rows, columns])
    others = np.flatnonzero(np.isin(landmarks, compared))  # columns of ``to_landmarks``
    if len(others) >= _FEWEST_COLUMNS:
        rows, columns = rng.choice(compared, 2 * MOST_PAIRS), rng.choice(others, 2 * MOST_PAIRS)
        return _distinct(rows, landmarks[columns], to_landmarks[rows, columns])
    second = compared if len(compared) <= _MOST_COLUMNS else rng.choice(compared, _MOST_COLUMNS, replace=False)
    rows, columns = rng.choice(compared, 2 * MOST_PAIRS), rng.choice(len(second), 2 * MOST_PAIRS)
    first, places = np.unique(rows, return_inverse=True)
    block = distance.pairwise(labels[first], labels[second])
    return _distinct(rows, second[columns], block[places, columns])


def _distinct(first: Int64, second: Int64, distances: Float32) -> ItemPairs:
    """The pairs of two items, each once, in the order in which they were drawn."""
    ordered = np.sort(np.stack([first, second], axis=1), axis=1)
    _, once = np.unique(ordered, axis=0, return_index=True)
    once.sort()
    once = once[first[once] != second[once]]
    pairs = _finite(first[once], second[once], distances[once])
    return ItemPairs(pairs.ids[:MOST_PAIRS], pairs.distances[:MOST_PAIRS])


def _finite(first: Int64, second: Int64, distances: Float32) -> ItemPairs:
    """The pairs that can be compared."""
    comparable = np.isfinite(distances)
    return ItemPairs(np.stack([first[comparable], second[comparable]], axis=1), distances[comparable])


DEPTH = 50  # label neighbours whose rank is known exactly where there are more items than landmarks
ALL_LANDMARKS, LANDMARKS = 2000, 500  # up to so many items all are landmarks; else so many, drawn at random
SPACE = 32  # dimensions in which the page measures distances from any item, near the true ones
_BLOCK = 256  # items whose distances are held at a time


@dataclass(frozen=True)
class LabelSide:
    """N items as their labels see them; distances are in the unit of the label distance."""

    distance: LabelDistance  # the label distance
    labels: Labels  # labels of the items
    nearest: Neighbors  # the nearest items of each by label, up to ``DEPTH``
    landmarks: Int64  # (m,) items that all others are compared with
    to_landmarks: Float32  # (N, m) label distances to them
    points: Float32  # (N, SPACE) points whose distances are near the label distances; the first two numbers are the map
    pairs: Int64  # (P, 2) items of the pairs to compare
    between: Float32  # (P,) label distances of the pairs

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_known(self) -> bool:
        """Whether any label distance between two items is known; none is of judged triplets."""
        return bool(np.isfinite(self.nearest.distances).any())

    def distances_to(self, ids: Int64) -> Float32:
        """Label distances (N, k) of each item to the k items of its row of ``ids`` (N, k)."""
        if len(self.landmarks) == len(self):
            return np.asarray(np.take_along_axis(self.to_landmarks, ids, axis=1), np.float32)
        distances = np.empty(ids.shape, np.float32)
        bar = ProgressBar(ids, "label distances of neighbours", unit="item", delay=BAR_DELAY)
        for row, others in enumerate(bar):
            distances[row] = self.distance.pairwise(self.labels[row : row + 1], self.labels[others])[0]
        return distances

    def ranks(
        self,
        distances: Float32,  # (N, k) label distances of each item to others
    ) -> Int64:  # (N, k) ranks from 1: exact for the nearest ``DEPTH``, beyond them estimated from the landmarks
        """Ranks of label distances among all of an item."""
        n, m = self.to_landmarks.shape
        is_landmark = np.zeros(n, np.int64)
        is_landmark[self.landmarks] = 1
        sorted_landmarks = np.sort(self.to_landmarks, axis=1)
        ranks = np.empty(distances.shape, np.int64)
        for row in range(n):
            own = is_landmark[row]
            nearer = np.searchsorted(sorted_landmarks[row], distances[row]) - own * (distances[row] > 0)
            exact = 1 + np.searchsorted(self.nearest.distances[row], distances[row])
            is_known = exact <= self.nearest.distances.shape[1]
            estimated = 1 + np.rint(nearer * ((n - 1) / max(1, m - own))).astype(np.int64)
            ranks[row] = np.where(is_known, exact, np.maximum(estimated, exact))
        return np.asarray(np.minimum(ranks, n - 1), np.int64)


def build_label_side(
    distance: LabelDistance,
    labels: Labels,
    *,
    # (N,) which items no network was trained on: the pairs to compare are of these; None for all
    held_out: Bools | None = None,
    seed: int = 0,
) -> LabelSide:
    """Compute what the explorer shows of the labels of N items, in O(N) memory."""
    n = len(labels)
    if n < 4:
        raise UserError(f"There should be at least 4 items to explore. Got {n} instead.")
    rng = np.random.default_rng(seed)
    landmarks = np.arange(n) if n <= ALL_LANDMARKS else np.sort(rng.choice(n, LANDMARKS, replace=False))
    to_landmarks = np.empty((n, len(landmarks)), np.float32)
    landmark_labels = labels[landmarks]
    for rows in row_blocks(n, "label distances"):
        to_landmarks[rows] = distance.pairwise(labels[rows], landmark_labels)
    with ProgressBar(total=n, desc="nearest labels", unit="item", delay=BAR_DELAY) as bar:
        nearest = distance.neighbors(labels, min(DEPTH, n - 1), progress=bar.update)
    points = landmark_mds(to_landmarks, landmarks, min(SPACE, len(landmarks)))
    pairs = choose_pairs(distance, labels, held_out, landmarks, to_landmarks, rng)
    return LabelSide(distance, labels, nearest, landmarks, to_landmarks, points, pairs.ids, pairs.distances)


def row_blocks(n: int, title: str) -> Iterator[slice]:
    """Slices of ``n`` rows, a block at a time, with a progress bar called ``title``."""
    with ProgressBar(total=n, desc=title, unit="item", delay=BAR_DELAY) as bar:
        for start in range(0, n, _BLOCK):
            stop = min(start + _BLOCK, n)
            yield slice(start, stop)
            bar.update(stop - start)
