"""Partly known labels and weights: what both labels know is compared, scaled to the whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cml
from cml.array_types import Float64
from cml.distances import Combined, Euclidean, Hamming, LabelDistance
from cml.errors import UserError

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(30, 4))
ROWS[RNG.random(ROWS.shape) < 0.3] = np.nan
ROWS[7] = np.nan
WEIGHTS = (1.0, 2.0, 0.5, 3.0)
OPTIONS: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=20)", "quiet": True}


def whole(distance: LabelDistance, labels: Any) -> Float64:  # noqa: ANN401
    rows = distance.encode(labels)
    return distance.pairwise(rows, rows).astype(np.float64)


def slow_share(a: list[Any], b: list[Any], weights: Any, apart: Any) -> float:  # noqa: ANN401
    """The sum over what both know, times the weight of all by that of the known."""
    known = [
        place for place in range(len(a)) if not any(value is None or value != value for value in (a[place], b[place]))
    ]
    if not known:
        return math.inf
    total = sum(weights[place] * apart(a[place], b[place]) for place in known)
    return total * sum(weights) / sum(weights[place] for place in known)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("squared", [False, True])
def test_known_numbers_are_compared(weights: Any, squared: bool) -> None:  # noqa: ANN401
    distance = Euclidean(squared, missing="skip", weights=weights)
    found, factors = whole(distance, ROWS.tolist()), weights or (1.0,) * 4
    for i in range(30):
        for j in range(30):
            square = slow_share(ROWS[i].tolist(), ROWS[j].tolist(), factors, lambda a, b: (a - b) ** 2)
            assert found[i, j] == pytest.approx(square if squared else math.sqrt(square), rel=1e-6)
    assert np.isinf(found[7]).all()
    assert (found.diagonal()[np.arange(30) != 7] == 0).all()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(
        whole(distance, [[None if v != v else v for v in row] for row in ROWS.tolist()]), found
    )
    assert not distance.is_metric
    assert distance.label_vectors(distance.encode(ROWS[:2].tolist())) is None


def test_without_unknown_numbers_nothing_changes_but_by_weights() -> None:
    rows = RNG.normal(size=(20, 4))
    plain = whole(Euclidean(), rows)
    np.testing.assert_allclose(whole(Euclidean(missing="skip"), rows), plain, rtol=1e-6)
    scaled = whole(Euclidean(), rows * np.sqrt(WEIGHTS))
    np.testing.assert_allclose(whole(Euclidean(weights=WEIGHTS), rows), scaled, rtol=1e-6)
    weighted = Euclidean(weights=WEIGHTS)
    vectors = weighted.label_vectors(weighted.encode(rows))
    assert vectors is not None
    np.testing.assert_allclose(np.linalg.norm(vectors[:, None] - vectors, axis=2), whole(weighted, rows), rtol=1e-6)
    np.testing.assert_allclose(weighted.labels_from_vectors(vectors), rows)
    assert Euclidean().fingerprint() == cml.distances.get("euclidean").fingerprint()
    assert cml.distances.as_label_distance("euclidean(missing=skip)") == Euclidean(missing="skip")
    assert cml.distances.as_label_distance("euclidean(weights=[1.0, 2.0])").encode([[1, 2]])


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_known_places_are_compared(weights: Any) -> None:  # noqa: ANN401
    values: list[Any] = ["red", 1, 0, True, None, math.nan]
    birds = [[values[choice] for choice in row] for row in RNG.integers(0, 6, (25, 4))]
    found, factors = whole(Hamming(missing="skip", weights=weights), birds), weights or (1.0,) * 4
    for i in range(25):
        for j in range(25):
            share = slow_share(birds[i], birds[j], factors, lambda a, b: float(a != b)) / sum(factors)
            assert found[i, j] == pytest.approx(share, rel=1e-6)
    full = [["a", 1, 0, 1], ["a", 0, 0, True], ["b", 1.0, 0, 1]]
    np.testing.assert_array_equal(whole(Hamming(missing="skip"), full), whole(Hamming(), full))
    with pytest.raises(UserError, match="holds None, which is neither"):
        Hamming().encode([["a", None]])


def test_known_parts_are_compared() -> None:
    ages = [30, None, 35, 60, math.nan, None]
    tags: list[Any] = [["a"], ["a", "b"], None, ["b"], ["a"], None]
    people = [{"age": age, "tags": tag} for age, tag in zip(ages, tags, strict=True)]
    parts = {"age": "euclidean", "tags": "jaccard"}
    distance = Combined(parts, {"age": 3.0, "tags": 1.0}, {"age": 10, "tags": 0.5}, missing="skip")
    found = whole(distance, people)
    assert found[0, 3] == pytest.approx(3 * 30 / 10 + 1 / 0.5)
    assert found[0, 1] == pytest.approx((0.5 / 0.5) * 4)  # the tags alone, whose weight is 1 of 4
    assert found[0, 2] == pytest.approx(3 * 0.5 * 4 / 3)
    assert math.isinf(found[1, 2])
    assert np.isinf(found[5]).all()
    fitted = Combined(parts, missing="skip").fit(people)
    assert fitted.scales == {"age": 25.0, "tags": 0.5}
    assert not distance.is_metric
    without = [{part: label for part, label in person.items() if label is not None} for person in people]
    np.testing.assert_array_equal(whole(distance, without), found)  # a part that is not there is not known
    with pytest.raises(UserError, match="part 'age'"):
        Combined(parts).encode(people)


def test_partly_known_labels_train() -> None:
    rows = RNG.normal(size=(60, 5)).astype(np.float32)
    labels = rows[:, :2].astype(float)
    labels[::4, 1] = np.nan
    cml.fit(rows, labels, label_distance="euclidean(missing=skip)", **OPTIONS)
    people = [{"age": age, "tags": ["x"] if other > 0 else ["z"]} for age, other in rows[:, :2].astype(float).tolist()]
    people[::4] = [person | {"age": None} for person in people[::4]]
    distance = Combined({"age": "euclidean", "tags": "jaccard"}, missing="skip")
    model = cml.fit(rows, people, label_distance=distance, **OPTIONS)
    assert model.evaluate(rows, people).rows["oracle"]["score@10"].mean == pytest.approx(1)
    with pytest.raises(UserError, match=r"compare the parts that both labels know, set missing='skip'"):
        cml.fit(rows, labels.tolist(), **OPTIONS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"missing": "guess"}, "missing"),
        ({"weights": (1.0, 0.0)}, "The 'weights' must be numbers above 0. Got 0.0 at place 1"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    for kind in (Euclidean, Hamming):
        with pytest.raises(UserError, match=message):
            kind(**settings)
    with pytest.raises(UserError, match=r"a weight for each of the 3 places of a label\. Got 2"):
        Euclidean(weights=(1.0, 2.0)).encode([[1, 2, 3]])
