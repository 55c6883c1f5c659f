"""Labels of items from those of their nearest neighbours in an embedding, and how far these neighbours disagree."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.retrieval.other_groups import find_other_groups
from cml.retrieval.search import nearest_embeddings

_MOST_AVERAGED = 1000  # labels


def predict_labels(
    query: Float32,  # (Q, D) embeddings
    gallery: Float32,  # (G, D) embeddings
    gallery_labels: Sequence[Any],  # G labels
    distance: LabelDistance,
    *,
    k: int = 10,
    groups: Int64 | None = None,  # (Q,) numbers of groups, whose items are no neighbours of each other
    gallery_groups: Int64 | None = None,  # (G,)
) -> list[Any]:  # Q labels, of the form of ``gallery_labels``
    """Predict the labels of queries from those of their k nearest gallery items.

    A neighbour's weight is the inverse of its embedding distance; neighbours at distance 0 are the only ones that count
    where there are any, as in scikit-learn's ``weights="distance"``. Labels that are vectors are averaged as vectors
    (angles on their circle, places on the globe). Of other labels, and where a mean has no direction, the medoid is
    taken: the neighbour's label with the least weighted sum of label distances to those of all k neighbours.
    """
    weights, positions = _find_neighbors(query, gallery, k, groups, gallery_groups)
    return _choose(weights, positions, gallery_labels, distance.encode(gallery_labels), distance)


def predict_with_spread(
    query: Float32,
    gallery: Float32,
    gallery_labels: Sequence[Any],
    distance: LabelDistance,
    *,
    k: int = 10,
    groups: Int64 | None = None,
    gallery_groups: Int64 | None = None,
) -> tuple[list[Any], Float64]:  # as ``predict_labels``, and (Q,) spreads; NaN where no neighbour can be compared
    """Predict labels, and measure the spread: the weighted mean label distance of neighbours from the prediction."""
    weights, positions = _find_neighbors(query, gallery, k, groups, gallery_groups)
    encoded = distance.encode(gallery_labels)
    predicted = _choose(weights, positions, gallery_labels, encoded, distance)
    return predicted, _spread(weights, positions, encoded, distance.encode(predicted), distance)


def predict_constant(gallery_labels: Sequence[Any], distance: LabelDistance) -> Any:  # noqa: ANN401 - a label
    """The one label that is predicted where nothing is known of an item: the mean, or the medoid, of 1,000 at most."""
    rows = np.random.default_rng(0).permutation(len(gallery_labels))[None, :_MOST_AVERAGED]
    weights, encoded = np.full(rows.shape, 1 / rows.size), distance.encode(gallery_labels)
    return _choose(weights, rows, gallery_labels, encoded, distance)[0]


def _find_neighbors(
    query: Float32, gallery: Float32, k: int, groups: Int64 | None, gallery_groups: Int64 | None
) -> tuple[Float64, Int64]:  # weights (Q, k), which sum to 1, and positions (Q, k)
    """Find the neighbours of each query."""
    if groups is None or gallery_groups is None:
        distances, positions = nearest_embeddings(query, gallery, min(k, len(gallery)))
    else:
        distances, positions, is_other = find_other_groups(query, gallery, k, groups, gallery_groups)
        if not is_other[:, 0].all():
            raise UserError("All gallery items are of the group of one of the inputs, so that none is left to ask.")
        distances = np.where(is_other, distances, np.float32(np.inf))  # which weighs nothing
        positions = np.where(is_other, positions, positions[:, :1])
    return _weigh(distances.astype(np.float64)), positions


def _choose(
    weights: Float64,  # (Q, k) of neighbours
    positions: Int64,  # (Q, k)
    gallery_labels: Sequence[Any],
    encoded: Labels,  # the same
    distance: LabelDistance,
) -> list[Any]:
    """The means of neighbours' labels where they have means, else their medoids."""
    vectors = distance.label_vectors(encoded)
    if vectors is not None:
        means = np.einsum("qk,qkv->qv", weights, np.asarray(vectors, np.float64)[positions])
        labels = distance.labels_from_vectors(means)
        if labels is not None:
            is_scalar = np.ndim(gallery_labels[0]) == 0
            predicted: list[Any] = labels[:, 0].tolist() if is_scalar else labels.tolist()
            undefined = np.flatnonzero(np.isnan(labels).any(axis=1))  # such as the mean of 0 and 180 degrees
            medoids = _medoids(weights[undefined], positions[undefined], encoded, distance)
            for row, medoid in zip(undefined.tolist(), medoids, strict=True):
                predicted[row] = gallery_labels[medoid]
            return predicted
    return [gallery_labels[position] for position in _medoids(weights, positions, encoded, distance)]


def _spread(weights: Float64, positions: Int64, labels: Labels, predicted: Labels, distance: LabelDistance) -> Float64:
    """The weighted mean label distance of each query's neighbours (Q, k) from its prediction."""
    spreads = np.full(len(weights), np.nan)
    for row, (weight, neighbors) in enumerate(zip(weights, positions, strict=True)):
        apart = distance.pairwise(predicted[row : row + 1], labels[neighbors])[0].astype(np.float64)
        known = np.isfinite(apart) & (weight > 0)
        if known.any():
            spreads[row] = apart[known] @ weight[known] / weight[known].sum()
    return spreads


def _weigh(distances: Float64) -> Float64:
    """Weights (Q, k) of neighbours, which sum to 1."""
    is_hit = distances == 0
    inverse = 1 / np.where(is_hit, 1, distances)
    weights = np.where(is_hit.any(axis=1, keepdims=True), is_hit, inverse)
    normalized: Float64 = weights / weights.sum(axis=1, keepdims=True)
    return normalized


def _medoids(weights: Float64, positions: Int64, labels: Labels, distance: LabelDistance) -> list[int]:
    """The position in the gallery of each query's medoid; labels that cannot be compared are the farthest."""
    chosen = []
    for weight, neighbors in zip(weights, positions, strict=True):
        some = labels[neighbors]
        between = distance.pairwise(some, some).astype(np.float64)
        np.fill_diagonal(between, 0)
        is_known = np.isfinite(between)
        farthest = 1 + between[is_known].max(initial=0)
        chosen.append(int(neighbors[np.argmin(np.where(is_known, between, farthest) @ weight)]))
    return chosen
