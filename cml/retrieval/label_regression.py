"""Regression of labels on features: the baseline that needs no metric learning, and whether features tell of labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Float64, Floating, Int64
from cml.data.vectors import ComputedRows
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.retrieval.item_units import groups_hold_classes

RIDGE_ROWS = ROW_OF_VECTORS, ROW_OF_MDS = "ridge", "ridge on label MDS"
"""The names of its row in a table, by how labels become vectors."""

Embed = Callable[[Floating | ComputedRows], Float32]
ALPHAS = tuple(10.0**power for power in range(-2, 7))  # of which leave-one-out errors, in closed form, choose
MDS_DIMENSION = 32
_MOST_ROWS = 20_000  # that a regression is fitted to
_PREDICTED = 1 << 14  # items at a time
_MOST_SCALED = 2_000  # items whose label distances to each other are scaled
_LEAST_SQUARE = 1e-12  # of a squared length, relative to the largest: below is rounding
_LEAST_FREE = 1e-12  # of what an item's own label leaves of its prediction


def fit_ridge(
    features: Floating,  # (N, F)
    targets: Floating,  # (N, V) vectors
) -> Embed:  # a function from features (M, F), also ones that are computed as they are read, to predictions (M, V)
    """Fit a ridge regression on standardised features; its strength is chosen by leave-one-out errors."""
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=ALPHAS)).fit(features, targets)

    def embed(some: Floating | ComputedRows) -> Float32:
        starts = range(0, len(some), _PREDICTED)
        parts = [np.asarray(ridge.predict(some[start : start + _PREDICTED]), np.float32) for start in starts]
        return np.concatenate(parts).reshape(len(some), -1)

    return embed


def fit_ridge_weights(
    features: Floating,  # (N, F)
    targets: Floating,  # (N, V) vectors
) -> tuple[Float64, Float64]:  # the weight (V, F) and the bias (V,): predictions are features @ weight.T + bias
    """Fit the regression of ``fit_ridge`` in float64, and give it as the linear map that it is.

    One decomposition serves all strengths (Golub, Heath and Wahba, Technometrics 21, 1979, equation 2.2), which is what
    makes this faster than ``fit_ridge`` where features are many.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    rows = scaler.fit_transform(np.asarray(features, np.float64))
    mean = targets.mean(axis=0, dtype=np.float64)
    centred = targets - mean
    left, lengths, right = _decompose(rows)
    coordinates = left.T @ centred  # (R, V)

    def measure_error(strength: float) -> float:  # of items that are left out, one at a time
        kept = lengths**2 / (lengths**2 + strength)  # (R,)
        free = 1 - 1 / len(rows) - np.square(left) @ kept  # (N,): 1 less the leverages
        errors = (centred - left @ (kept[:, None] * coordinates)) / np.maximum(free, _LEAST_FREE)[:, None]
        return float(np.square(errors).mean())

    strength = min(ALPHAS, key=measure_error)
    weight = (right @ ((lengths / (lengths**2 + strength))[:, None] * coordinates)).T / scaler.scale_
    return weight, mean - weight @ scaler.mean_


def _decompose(
    rows: Float64,
) -> tuple[Float64, Float64, Float64]:  # the left vectors (N, R), the lengths (R,) and the right vectors (F, R)
    """Decompose rows (N, F) into singular vectors and lengths, by the smaller of their two Gram matrices."""
    is_tall = len(rows) > rows.shape[1]
    values, vectors = np.linalg.eigh(rows.T @ rows if is_tall else rows @ rows.T)
    is_used = values > _LEAST_SQUARE * values[-1]
    lengths, vectors = np.sqrt(values[is_used]), vectors[:, is_used]
    others: Float64 = (rows if is_tall else rows.T) @ vectors / lengths
    return (others, lengths, vectors) if is_tall else (vectors, lengths, others)


def scale_labels(
    distances: Float32,  # (N, N) label distances; those that cannot be compared count as the largest
    dimension: int = MDS_DIMENSION,
) -> Float64:  # (N, V) vectors, V <= ``dimension``; fewer if fewer have a positive eigenvalue
    """Find vectors whose distances are nearest to label distances: classical MDS (Torgerson, Psychometrika, 1952)."""
    known = np.isfinite(distances)
    squared = np.square(np.where(known, distances, distances[known].max()), dtype=np.float64)
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    kept = min(dimension, int((values > 1e-9 * values[-1]).sum()))
    scaled: Float64 = vectors[:, -kept:] * np.sqrt(values[-kept:])
    return scaled


def fit_label_regression(
    features: Floating | ComputedRows,  # (N, F)
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
) -> tuple[str, Embed]:
    """Fit the regression that suits a label distance: of labels that are vectors, or of their classical MDS.

    A random part of many items is fitted: 20,000, or 2,000 whose label distances are scaled.
    """
    rows, targets = draw_targets(labels, distance, most=_MOST_ROWS, most_scaled=_MOST_SCALED)
    name = ROW_OF_MDS if distance.label_vectors(labels[:1]) is None else ROW_OF_VECTORS
    return name, fit_ridge(features[rows], targets)


def draw_targets(
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    *,
    most: int,
    most_scaled: int,
    seed: int = 0,
) -> tuple[Int64, Float64]:  # the positions (M,) of the items, in their order, and their targets (M, V)
    """Draw the items that a regression of labels is fitted to, with their targets."""
    is_scaled = distance.label_vectors(labels[:1]) is None
    size = min(len(labels), most_scaled if is_scaled else most)
    rows = np.sort(np.random.default_rng(seed).choice(len(labels), size, replace=False))
    some = labels[rows]
    if is_scaled:
        return rows, scale_labels(distance.pairwise(some, some))
    return rows, np.asarray(distance.label_vectors(some), np.float64)


ITEMS = 300  # at most
_FOLDS = 5
_SHUFFLES = 299
_CHANCE = 0.01
_STRENGTHS = (0.03, 0.3, 3.0)  # of the ridge, relative to the variance of all features together


@dataclass(frozen=True)
class LabelSignal:
    """What features tell about labels."""

    # share of the variance of held-out labels that a ridge regression explains; below 0 if it is worse than the mean
    # label
    explained: float
    # share of 300 labellings, the true one among them, that are predicted at least as well as the true one. Labels that
    # have nothing to do with the features give each value from 1/300 to 1 equally often
    share: float

    @property
    def is_clear(self) -> bool:
        """Whether chance would give such a signal in at most 1 of 100 cases."""
        return self.share <= _CHANCE


@dataclass(frozen=True)
class LabelSignals:
    """What training items tell about their labels."""

    features: LabelSignal  # the features of the frozen network, or the vectors
    # images of 8 x 8 pixels; None of vectors, and where a feature store takes the place of images
    pixels: LabelSignal | None


def find_label_signal(
    features: Floating | ComputedRows,  # (N, F), of which 300 items at most are looked at
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    groups: NDArray[Any] | None = None,  # (N,) of items that belong together; None where each stands for itself
    *,
    seed: int = 0,
) -> LabelSignal:
    """Test whether features tell anything about labels, of groups other than those that are known.

    A ridge regression of the labels, or of their classical MDS, predicts each fifth of the items, or of the groups,
    from the others. Its error is compared with the errors for shuffled labels, a permutation test: the best of three
    strengths counts for both.
    """
    rng = np.random.default_rng(seed)
    rows, targets = draw_targets(labels, distance, most=ITEMS, most_scaled=ITEMS, seed=seed)
    numbers = np.arange(len(rows))
    if groups is not None:
        of_groups, names = np.unique(groups[rows], return_inverse=True)[1], distance.class_names(labels[rows])
        numbers = numbers if groups_hold_classes(of_groups, names) else of_groups
    orders = np.concatenate([np.arange(len(rows))[None], _shuffle(numbers, rng)])
    shuffled = np.moveaxis(targets[orders], 0, 1)  # (N, P, V)
    shuffled = shuffled - shuffled.mean(axis=0)
    variances = np.maximum(np.square(shuffled).sum(axis=(0, 2)), np.finfo(np.float64).tiny)  # (P,)
    flat = shuffled.reshape(len(rows), -1)
    some = np.asarray(features[rows], np.float64)
    some = (some - some.mean(axis=0)) / np.maximum(some.std(axis=0), 1e-9)
    products = some @ some.T / some.shape[1]
    errors: Float64 = np.full(len(orders), np.inf)
    parts = np.array_split(rng.permutation(numbers.max() + 1), _FOLDS)
    folds = [np.flatnonzero(np.isin(numbers, part)) for part in parts if len(part)]
    for strength in _STRENGTHS:
        total = np.zeros(len(orders))
        for held_out in folds:
            trained = np.setdiff1d(np.arange(len(rows)), held_out)
            ridge = products[np.ix_(trained, trained)] + strength * np.eye(len(trained))
            predicted = products[np.ix_(held_out, trained)] @ np.linalg.solve(ridge, flat[trained])
            missed = (flat[held_out] - predicted).reshape(len(held_out), *shuffled.shape[1:])
            total += np.square(missed).sum(axis=(0, 2))
        errors = np.minimum(errors, total / variances)
    share = float((errors <= errors[0] * (1 + 1e-12)).mean())
    return LabelSignal(float(1 - errors[0]), share)


def _shuffle(numbers: Int64, rng: np.random.Generator) -> Int64:
    """Draw orders (P, N) of items with numbers of groups, under which labels have nothing to do with features.

    Labels of one group resemble each other. So that they still do, a group gets those of another one, which are
    repeated or cut where that has another size.
    """
    count = numbers.max() + 1
    drawn = np.stack([rng.permutation(count) for _ in range(_SHUFFLES)])
    if count == len(numbers):
        return drawn
    members = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
    orders = np.empty((_SHUFFLES, len(numbers)), np.int64)
    for group, others in enumerate(drawn.T):
        orders[:, members[group]] = [np.resize(members[other], len(members[group])) for other in others]
    return orders
