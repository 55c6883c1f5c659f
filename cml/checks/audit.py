"""Audit of labels: which labels disagree with those of similar items, whatever kind of label they are.

Three scores say how much a label disagrees with what its item's features suggest: how surprising it is among the labels
of the nearest neighbours, by the features themselves and by an embedding that was trained on the other items, and how
far it is from the prediction of a ridge regression on the other items. The score is a weighted mean of their ranks. The
weights are those that best tell the labels from labels that are exchanged at random, which are wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from cml import losses
from cml.array_types import Float32, Float64, Int64
from cml.checks.label_density import LabelDensity, weigh_neighbors
from cml.checks.wrong_labels import WrongLabels, average_neighbors, count_wrong
from cml.distances.label_distance import LabelDistance, listed_distances
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.label_regression import scale_labels
from cml.retrieval.search import nearest_others
from cml.training.head_losses import HeadLosses
from cml.training.linear_map import fit_rotation
from cml.training.training_targets import TrainingTargets

FEWEST_ITEMS = 30
NEIGHBORS = 10  # that a list names
_COMPARED = 20  # neighbours that labels are compared with
_FOLDS = 5
FROZEN, TRAINED, RIDGE = "frozen neighbours", "trained neighbours", "ridge residual"
_COMPONENTS, _DIMENSION = 128, 32
_STEPS, _BATCH, _RATE, _DECAY = 150, 64, 3e-3, 0.1
_REGRESSED = 256  # principal components
_ALPHAS = tuple(10.0**power for power in range(-3, 4))
_TINY = 1e-12
_MOST_SCALED = 1000  # items whose label distances to each other are scaled
_PROBED = 500
_LITTLE = 0.6  # chance that an exchanged label has a higher score than a given one: below, features tell hardly any
_MANY = 0.5  # of the labels: if so many may be wrong, the count says nothing
_LOOKED_AT = 10  # items to look at where none is known to be wrong


class _Neighbors(NamedTuple):
    """The nearest others of each item."""

    distances: Float32  # (N, K) between features or embeddings, the nearest first
    items: Int64  # (N, K)


@dataclass(frozen=True, eq=False)
class Audit:
    """How far each label is from what its item suggests."""

    scores: Float64  # (N,) from 0 to 1, the weighted mean of the parts: 1 is the label most likely to be wrong
    # the rank (N,) from 0 to 1 by each of "frozen neighbours", "trained neighbours" and "ridge residual", among the
    # labels as they are and as many exchanged ones
    parts: Mapping[str, Float64]
    weights: Mapping[str, float]  # the weight of each part, which sum to 1
    neighbors: Int64  # (N, 10) the nearest items by the trained embedding
    neighbor_distances: Float64  # (N,) the median label distance to them, in ``unit``
    wrong: WrongLabels  # how many labels are wrong, with an interval
    unit: str  # the unit of label distances
    chances: Float64  # (N,) the share of exchanged labels whose score is at least that of each item

    @property
    def order(self) -> Int64:
        """The items (N,), the label most likely to be wrong first."""
        return np.argsort(-self.scores, kind="stable")

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def wrong_among(self, count: int) -> float:  # the estimate, at most ``count``
        """Estimate how many labels of the first items in ``order`` are wrong.

        It is the share of the estimate that has such scores if wrong labels are like exchanged ones: too few of the
        first items where errors are plainer than exchanged labels.
        """
        if count < 1:
            return 0.0
        last = self.order[min(count, len(self.scores)) - 1]
        return min(float(count), self.wrong.estimate * float(self.chances[last]))

    def lines(self) -> list[str]:
        """Say how many labels may be wrong."""
        count, (estimate, low, high) = len(self.scores), self.wrong
        first = min(count, max(_LOOKED_AT, round(estimate)) if low else _LOOKED_AT)
        if low:
            wrong = f"About {estimate:.0f} ({estimate / count:.1%}) are wrong (interval: {low:.0f} to {high:.0f})."
        else:
            wrong = f"None is shown to be wrong; up to {high:.0f} may be (estimate: {estimate:.0f})."
        lines = [
            f"audited {count} labels. {wrong} Look at the first {first}.",
            "The estimate assumes that correct labels scatter equally around the labels of similar items, with heavy "
            "tails, and that wrong labels were exchanged, made noisy, replaced by one value, halved or mirrored.",
        ]
        if self.chances.mean() < _LITTLE:
            lines.append("The features predict these labels hardly better than chance, so the audit is unreliable.")
        elif high > _MANY * count:
            lines.append(
                "The labels of similar items differ so much that the estimate is unreliable; the order may still help."
            )
        return lines


def audit_labels(
    features: Float32,  # (N, F) of a network that was not trained on the labels
    labels: Labels,
    distance: LabelDistance,
    *,
    groups: Int64 | None = None,  # (N,) numbers of groups that are held out together; None for none
    factor: float = 1.0,  # factor that converts label distances to ``unit``
    unit: str = "",  # their unit; that of the label distance when not given
    seed: int = 0,
) -> Audit:
    """Find the labels that disagree with those of similar items."""
    from scipy.stats import rankdata

    _check_features_and_labels(features, labels, distance, seed)
    count = len(features)
    folds = deal_folds(count, groups, seed=seed)
    targets = _label_targets(labels, distance, seed)
    frozen = _find_frozen_neighbors(features)
    trained, predicted = _fit_folds(features, labels, distance, targets, folds, seed)

    # each item is judged with its own label and, for comparison, with that of a random other item
    exchange = np.random.default_rng([seed, 1]).permutation(count)
    label_items = np.concatenate([np.arange(count), exchange])  # (2 N,) whose label it is
    frozen_distances, trained_distances = (  # label distances (2 N, K) to the neighbours
        listed_distances(distance, labels[label_items], labels, np.tile(neighbors.items, (2, 1))).astype(np.float64)
        for neighbors in (frozen, trained)
    )
    density = LabelDensity(distance, labels, seed=seed)
    frozen_weights, trained_weights = (
        np.tile(weigh_neighbors(neighbors.distances), (2, 1)) for neighbors in (frozen, trained)
    )
    disagreements = {
        FROZEN: density.surprise(label_items, frozen_distances, frozen_weights),
        TRAINED: density.surprise(label_items, trained_distances, trained_weights),
        RIDGE: np.linalg.norm(np.tile(predicted, (2, 1)) - targets[label_items], axis=1),
    }

    # the parts are ranked together, weighed by how well they tell the exchanged labels, and added
    ranks = {name: (rankdata(values) - 0.5) / len(values) for name, values in disagreements.items()}
    weights = weigh_parts(ranks)
    scores, exchanged_scores = np.split(np.sum([weights[name] * ranks[name] for name in ranks], axis=0), 2)
    chances = 1 - np.searchsorted(np.sort(exchanged_scores), scores, side="left") / count
    predictions = {RIDGE: predicted}
    for name, neighbors in ((FROZEN, frozen), (TRAINED, trained)):
        predictions[name] = average_neighbors(targets, neighbors.items)
    return Audit(
        scores,
        {name: values[:count] for name, values in ranks.items()},
        weights,
        trained.items[:, :NEIGHBORS],
        factor * _median_distances(trained_distances[:count, :NEIGHBORS]),
        wrong=count_wrong(targets, predictions, trained.items, seed=seed),
        unit=unit or distance.unit,
        chances=chances,
    )


def deal_folds(
    count: int,  # N, the number of items
    groups: Int64 | None = None,  # (N,) numbers of groups; None for none
    *,
    seed: int = 0,
) -> list[Int64]:  # the items of each fold, ascending
    """Deal items to five folds at random, whole groups where there are groups.

    Frames of a film are dealt one by one too: the labels of frames beside a wrong one are what tells it. Blocks of the
    order of the items found fewer errors, even where eight frames in a row were wrong.
    """
    numbers = np.arange(count) if groups is None else np.unique(groups, return_inverse=True)[1]
    names = int(numbers.max()) + 1
    if names < _FOLDS:
        raise UserError(f"'groups' must name at least {_FOLDS} groups. Got {names} instead.")
    owners = np.random.default_rng(seed).permutation(names) % _FOLDS
    return [np.flatnonzero(owners[numbers] == fold) for fold in range(_FOLDS)]


def _check_features_and_labels(features: Float32, labels: Labels, distance: LabelDistance, seed: int) -> None:
    if len(features) < FEWEST_ITEMS:
        raise UserError(f"An audit needs at least {FEWEST_ITEMS} items. Got {len(features)} instead.")
    if not np.isfinite(features).all():
        row = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise UserError(f"An audit needs finite features. Those of item {row} are not finite.")
    if (features == features[0]).all():
        raise UserError("An audit finds nothing to compare labels by: the features of all items are equal.")
    some = labels[np.sort(np.random.default_rng(seed).permutation(len(labels))[:_PROBED])]
    apart = distance.pairwise(some, some)[np.triu_indices(len(some), 1)]
    apart = apart[np.isfinite(apart)]
    if not len(apart):
        raise UserError(
            f"An audit needs label distances, but no two of the {len(some)} labels checked can be compared. "
            "Judged triplets have no distances."
        )
    if apart.max() == apart.min():
        what = f"All distances among the {len(some)} items checked are {apart[0]:g}."
        raise UserError(f"An audit needs label distances that differ. {what}")


def _count_compared(count: int) -> int:
    """The number of neighbours that labels are compared with, fewer where there are few items."""
    return min(_COMPARED, count // 3)


def _find_frozen_neighbors(features: Float32) -> _Neighbors:
    """The nearest others by the features as they are, centred and L2-normalised."""
    centred = features - features.mean(axis=0, dtype=np.float64).astype(np.float32)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = centred / np.where(lengths > 0, lengths, 1)
    return _Neighbors(*nearest_others(unit, np.arange(len(features)), _count_compared(len(features))))


def _fit_folds(
    features: Float32, labels: Labels, distance: LabelDistance, targets: Float64, folds: Sequence[Int64], seed: int
) -> tuple[_Neighbors, Float64]:
    """Find neighbours by heads, and predict targets (N, V); each item by what was fitted to the other folds."""
    count, compared = len(features), _count_compared(len(features))
    neighbors = _Neighbors(np.empty((count, compared), np.float32), np.empty((count, compared), np.int64))
    predicted = np.empty_like(targets)
    for number, held_out in enumerate(folds):
        rest = np.setdiff1d(np.arange(count), held_out)
        embeddings = _train_head(features, labels, distance, rest, seed + number)
        neighbors.distances[held_out], neighbors.items[held_out] = nearest_others(embeddings, held_out, compared)
        predicted[held_out] = _predict(features, targets, rest, held_out)
    return neighbors, predicted


def _median_distances(label_distances: Float64) -> Float64:
    """The median (N,) of label distances (N, K) to neighbours; labels that cannot be compared are the farthest."""
    known = np.isfinite(label_distances)
    return np.median(np.where(known, label_distances, label_distances[known].max(initial=0)), axis=1)


def weigh_parts(ranks: Mapping[str, Float64]) -> dict[str, float]:
    """Weigh parts so that their sum tells exchanged labels best from the labels as they are.

    This is Fisher's linear discriminant with weights that are not negative, by least squares. It needs no label that is
    known to be wrong: those that are exchanged at random are, and of the others most are right.
    """
    from scipy.optimize import nnls

    columns = np.stack(list(ranks.values()), axis=1)
    is_exchanged = np.repeat([-0.5, 0.5], len(columns) // 2)
    weights = nnls(columns - columns.mean(axis=0), is_exchanged)[0]
    if not weights.any():
        weights = np.ones(len(weights))
    return dict(zip(ranks, (weights / weights.sum()).tolist(), strict=True))


def _label_targets(labels: Labels, distance: LabelDistance, seed: int) -> Float64:
    """Labels as vectors (N, V); where they are none, their landmark MDS (de Silva and Tenenbaum, 2004)."""
    vectors = distance.label_vectors(labels)
    if vectors is not None:
        return np.asarray(vectors, np.float64)
    landmarks = np.sort(np.random.default_rng(seed).permutation(len(labels))[:_MOST_SCALED])
    to_landmarks = distance.pairwise(labels, labels[landmarks]).astype(np.float64)
    known = np.isfinite(to_landmarks)
    squared = np.square(np.where(known, to_landmarks, to_landmarks[known].max()))
    points = scale_labels(np.sqrt(squared[landmarks]).astype(np.float32))
    pseudo_inverse = points / np.square(points).sum(axis=0)
    scaled: Float64 = -0.5 * (squared - squared[landmarks].mean(axis=0)) @ pseudo_inverse
    return scaled


def _predict(features: Float32, targets: Float64, rest: Int64, held_out: Int64) -> Float64:
    """Predict the targets of some items by a ridge regression on the others' principal components.

    The components are not standardised: those with little spread are to count little.
    """
    from sklearn.linear_model import RidgeCV

    rotation = fit_rotation(features[rest], standardize=False, components=_REGRESSED)
    rows = rotation.rotate(features).astype(np.float64) / max(rotation.spread[0], _TINY)
    ridge = RidgeCV(_ALPHAS).fit(rows[rest], targets[rest])
    predicted: Float64 = ridge.predict(rows[held_out]).reshape(len(held_out), -1)
    return predicted


def _train_head(features: Float32, labels: Labels, distance: LabelDistance, rest: Int64, seed: int) -> Float32:
    """Embed all items by a head that some were trained on; by their principal components if no head can be trained."""
    rotation = fit_rotation(features[rest], standardize=False, components=_COMPONENTS)
    rows = torch.from_numpy(rotation.rotate(features) / np.float32(max(rotation.spread[0], _TINY)))
    dimension = min(_DIMENSION, rows.shape[1])
    weight = torch.zeros(rows.shape[1], dimension)
    weight[torch.arange(dimension), torch.arange(dimension)] = 1
    loss = losses.registry.make("log-ratio")
    try:
        loss.prepare(loss.target(TrainingTargets(distance, labels[rest], seed=seed)), dimension=dimension)
    except UserError:
        return np.ascontiguousarray(rows.numpy())
    head_losses = HeadLosses([loss])
    generator = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW([weight], _RATE, weight_decay=_DECAY)
    for step in range(_STEPS):
        batch = generator.choice(rest, min(_BATCH, len(rest)), replace=False)
        some = labels[batch]
        block = torch.from_numpy(np.ascontiguousarray(distance.pairwise(some, some), np.float32))
        taken = rows[torch.from_numpy(batch)]
        weight.grad = taken.T @ head_losses.slopes((taken @ weight)[None], block, None)[0]
        optimizer.param_groups[0]["lr"] = _RATE * 0.5 * (1 + np.cos(np.pi * step / _STEPS))
        optimizer.step()
    return torch.nn.functional.normalize(rows @ weight, dim=1).numpy()
