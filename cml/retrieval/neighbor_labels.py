"""The label that an item's neighbours in an embedding let expect: their weighted mean, or their medoid."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.retrieval.search import nearest_embeddings


def predict_labels(
    query: Float32,  # (Q, D) embeddings
    gallery: Float32,  # (G, D) embeddings
    gallery_labels: Sequence[Any],  # G labels
    distance: LabelDistance,
    *,
    k: int = 10,
) -> list[Any]:  # Q labels, of the form of ``gallery_labels``
    """Predict the labels of queries from those of their k nearest gallery items.

    A neighbour's weight is the inverse of its embedding distance; neighbours at distance 0 are the only ones that count
    where there are any, as in scikit-learn's ``weights="distance"``. Labels that are vectors are averaged as vectors
    (angles on their circle, places on the globe). Of other labels the medoid is taken: the neighbour's label with the
    least weighted sum of label distances to those of all k neighbours.
    """
    distances, positions = nearest_embeddings(query, gallery, min(k, len(gallery)))
    encoded = distance.encode(gallery_labels)
    weights = _weigh(distances.astype(np.float64))
    vectors = distance.label_vectors(encoded)
    if vectors is not None:
        means = np.einsum("qk,qkv->qv", weights, np.asarray(vectors, np.float64)[positions])
        labels = distance.labels_from_vectors(means)
        if labels is not None:
            is_scalar = np.ndim(gallery_labels[0]) == 0
            return labels[:, 0].tolist() if is_scalar else labels.tolist()  # type: ignore[no-any-return]
    return [gallery_labels[position] for position in _medoids(weights, positions, encoded, distance)]


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
