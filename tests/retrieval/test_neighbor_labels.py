"""Labels predicted from neighbours against slow loops, scikit-learn and circular means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsRegressor

from cml.distances import as_label_distance
from cml.retrieval.neighbor_labels import predict_labels, predict_with_spread

RNG = np.random.default_rng(2)
GALLERY = RNG.normal(size=(60, 4)).astype(np.float32)
QUERY = np.concatenate([RNG.normal(size=(20, 4)), GALLERY[:2]]).astype(np.float32)


@pytest.mark.parametrize("labels", [RNG.normal(size=60), RNG.normal(size=(60, 3))])
@pytest.mark.parametrize("k", [1, 7, 100])
def test_numbers_and_vectors_are_those_of_scikit_learn(labels: np.ndarray, k: int) -> None:
    predicted = predict_labels(QUERY, GALLERY, labels.tolist(), as_label_distance("euclidean"), k=k)
    regressor = KNeighborsRegressor(n_neighbors=min(k, 60), weights="distance").fit(GALLERY, labels)
    np.testing.assert_allclose(predicted, regressor.predict(QUERY), rtol=1e-4, atol=1e-6)


def test_angles_are_averaged_on_their_circle() -> None:
    labels = [350.0, 10.0, 20.0]
    points = np.array([[1.0], [-1.0], [9.0]], np.float32)
    (predicted,) = predict_labels(np.zeros((1, 1), np.float32), points, labels, as_label_distance("circular"), k=2)
    assert min(predicted, 360 - predicted) == pytest.approx(0, abs=1e-6)
    hours = predict_labels(
        np.zeros((1, 1), np.float32), points, [23, 2, 9], as_label_distance("circular(period=24)"), k=2
    )
    assert hours[0] == pytest.approx(0.5)


def test_places_are_averaged_on_the_globe() -> None:
    labels = [[0.0, 179.0], [0.0, -179.0], [50.0, 0.0]]
    points = np.array([[1.0], [-1.0], [9.0]], np.float32)
    ((latitude, longitude),) = predict_labels(
        np.zeros((1, 1), np.float32), points, labels, as_label_distance("haversine"), k=2
    )
    assert (latitude, abs(longitude)) == (pytest.approx(0, abs=1e-6), pytest.approx(180, abs=1e-6))


@pytest.mark.parametrize("name", ["jaccard", "classes"])
def test_other_labels_are_the_medoid_of_a_slow_loop(name: str) -> None:
    distance = as_label_distance(name)
    sets = [sorted(RNG.choice(8, 4, replace=False).tolist()) for _ in range(60)]
    labels = [[f"w{word}" for word in some] for some in sets] if name == "jaccard" else [f"c{some[0]}" for some in sets]
    predicted = predict_labels(QUERY, GALLERY, labels, distance, k=5)
    far = np.linalg.norm(QUERY[:, None].astype(np.float64) - GALLERY[None], axis=2)
    for row, label in zip(far, predicted, strict=True):
        nearest = np.argsort(row, kind="stable")[:5]
        weights = np.where(row[nearest] == 0, 1, 0) if (row[nearest] == 0).any() else 1 / row[nearest]
        costs = []
        for candidate in nearest:
            pairs = [
                distance.pairwise(distance.encode([labels[candidate]]), distance.encode([labels[j]])) for j in nearest
            ]
            numbers = [float(pair[0, 0]) if np.isfinite(pair[0, 0]) else 2.0 for pair in pairs]
            costs.append(float(weights @ numbers))
        assert costs[[labels[j] for j in nearest].index(label)] == pytest.approx(min(costs), rel=1e-5)


@pytest.mark.parametrize(
    ("choice", "labels"),
    [
        ("circular", [0.0, 180.0, 350.0]),
        ("circular(period=24)", [[6.0, 1.0], [18.0, 1.0], [7.0, 1.0]]),
        ("haversine", [[0.0, 0.0], [0.0, 180.0], [1.0, 0.0]]),
    ],
)
def test_a_mean_without_direction_is_the_medoid(choice: str, labels: list[Any]) -> None:
    points = np.array([[1.0], [-1.0], [9.0]], np.float32)
    (between,) = predict_labels(np.zeros((1, 1), np.float32), points, labels, as_label_distance(choice), k=2)
    assert between in labels[:2]
    (near,) = predict_labels(np.full((1, 1), 5.0, np.float32), points, labels, as_label_distance(choice), k=2)
    assert near not in labels
    assert np.isfinite(near).all()


@pytest.mark.parametrize("choice", ["euclidean", "circular(period=24)", "haversine"])
def test_labels_come_back_from_their_vectors(choice: str) -> None:
    distance = as_label_distance(choice)
    labels = RNG.uniform([-80, -170], [80, 170], (30, 2))
    vectors = distance.label_vectors(distance.encode(labels.tolist()))
    assert vectors is not None
    again = distance.labels_from_vectors(3 * vectors if choice != "euclidean" else vectors)
    assert again is not None
    assert distance.pairwise(distance.encode(labels.tolist()), distance.encode(again.tolist())).diagonal().max() < 1e-2


@pytest.mark.parametrize("kind", ["numbers", "classes"])
def test_the_spread_is_the_weighted_mean_label_distance_of_the_neighbours(kind: str) -> None:
    rng = np.random.default_rng(2)
    labels: list[Any] = rng.normal(size=len(GALLERY)).tolist()
    if kind == "classes":
        labels = [f"class {number}" for number in rng.integers(0, 3, len(GALLERY))]
    distance = as_label_distance("euclidean" if kind == "numbers" else "classes")
    predicted, spreads = predict_with_spread(QUERY, GALLERY, labels, distance, k=5)
    assert predicted == predict_labels(QUERY, GALLERY, labels, distance, k=5)
    for query, label, spread in zip(QUERY, predicted, spreads, strict=True):
        apart = np.linalg.norm(GALLERY.astype(np.float64) - query, axis=1)
        nearest = np.argsort(apart, kind="stable")[:5]
        far = [float(labels[n] != label) if kind == "classes" else abs(labels[n] - label) for n in nearest]
        weights = 1 / apart[nearest] if apart.min() > 0 else (apart[nearest] == 0).astype(float)
        assert spread == pytest.approx(np.average(far, weights=weights), rel=1e-4, abs=1e-6)
