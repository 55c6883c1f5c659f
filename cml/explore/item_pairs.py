"""The pairs of items that the Shepard diagram compares: held-out items alone, as far as there are any."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels

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
