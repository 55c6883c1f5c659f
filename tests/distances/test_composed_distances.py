from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cml.distances
from cml.array_types import Float32
from cml.distances import LabelDistance
from cml.distances.combined import Combined
from cml.distances.jaccard import Jaccard
from cml.distances.labels import LabelError
from cml.distances.sets import Sets
from cml.errors import UserError
from cml.registry import Choice

NAMES = st.lists(st.sampled_from(["a", "b", "c", "d", "é"]), max_size=5)


def whole(distance: LabelDistance, labels: Any) -> Float32:  # noqa: ANN401
    packed = distance.encode(labels)
    return distance.pairwise(packed, packed)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=8), st.integers(1, 400))
def test_sets_equal_the_plain_loop(labels: list[list[int]], block_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cml.distances.sets._BLOCK_BYTES", block_bytes)
        found = whole(Sets("euclidean"), labels)
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            there = sum(min(abs(x - y) for y in b) for x in a)
            back = sum(min(abs(x - y) for x in a) for y in b)
            assert found[i, j] == there + back


def test_sets_are_excluded_if_a_member_compares_with_none() -> None:
    poses = [[[0, 0, 1], [1, 1, 1], [9, 9, 0]], [[3, 4, 1], [0, 0, 0], [1, 1, 1]], [[0, 0, 0], [4, 5, 1], [0, 0, 1]]]
    found = whole(Sets("keypoints(min_shared=2)"), [[poses[0]], [poses[1]], [poses[0], poses[1]]])
    expected = [[0, np.inf, np.inf], [np.inf, 0, np.inf], [np.inf, np.inf, 0]]
    np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(-5, 5), NAMES), min_size=2, max_size=8, unique_by=lambda label: round(label[0], 2)))
def test_combined_equals_the_plain_loop(labels: list[tuple[float, list[str]]]) -> None:
    ages, tags = [age for age, _ in labels], [tag for _, tag in labels]
    weights, scales = {"age": 2.0, "tags": 0.5}, {"age": 4.0, "tags": 0.1}
    people = [{"age": age, "tags": tag} for age, tag in labels]
    found = whole(Combined({"age": "euclidean", "tags": "jaccard"}, weights, scales), people)
    jaccard = whole(Jaccard(), tags)
    for i in range(len(labels)):
        for j in range(len(labels)):
            assert found[i, j] == pytest.approx(2 / 4 * abs(ages[i] - ages[j]) + 0.5 / 0.1 * jaccard[i, j], rel=1e-6)


def test_combined_scales_are_the_medians_of_the_positive_finite_distances() -> None:
    ages = [0, 0, 1, 3, 7]  # positive differences: 1 1 3 3 7 7 2 6 4
    fitted = Combined({"age": "euclidean"}).fit([{"age": age} for age in ages])
    assert fitted.scales == {"age": 3}
    again = cml.distances.as_label_distance(str(Choice("combined", fitted.settings())))
    assert again.fingerprint() == fitted.fingerprint()
    assert whole(again, [{"age": 0}, {"age": 6}])[0, 1] == 2


def test_fit_reaches_the_parts() -> None:
    ages = [[0], [2, 2], [6]]
    nested = Combined({"people": Sets(Combined({"age": "euclidean"}))})
    labels = [{"people": [{"age": age} for age in label]} for label in ages]
    assert ": 4.0}" in str(nested.fit(labels).settings()["parts"])  # differences 2 2 6 4 4
    assert ": 4.0}" not in str(nested.settings())


def test_combined_refuses_what_has_no_common_scale() -> None:
    distance = Combined({"age": "euclidean"})
    one, other = distance.encode([{"age": 1}, {"age": 2}]), distance.encode([{"age": 1}, {"age": 4}])
    with pytest.raises(UserError, match=r"different scales, \[1.0\] and \[3.0\]; fit the distance on the training"):
        distance.pairwise(one, other)
    with pytest.raises(UserError, match="The part 'age' has no scale: no two of 2 labels differ"):
        distance.encode([{"age": 1}, {"age": 1}])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"parts": {}}, "at least one part"),
        ({"parts": "euclidean"}, "at least one part"),
        ({"parts": {"age": "euclid"}}, "Did you mean 'euclidean'"),
        ({"parts": {"age": "euclidean"}, "weights": {"size": 1}}, "'weights' must name the parts age"),
        ({"parts": {"age": "euclidean"}, "weights": {"age": 0}}, "'weights' of 'age' must be a number above 0. Got 0"),
        ({"parts": {"age": "euclidean"}, "scales": {"age": math.inf}}, "'scales' of 'age' must be a number above 0"),
    ],
)
def test_combined_settings(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Combined(**chosen)


def test_distances_nest() -> None:
    view = "sets(base='keypoints(min_shared=2)')"
    distance = cml.distances.as_label_distance(
        f'combined(parts={{"view": "{view}", "age": "euclidean(squared=true)"}})'
    )
    poses = np.random.default_rng(0).integers(0, 9, (4, 2, 5, 3))
    poses[..., 2] = 1
    people = [{"view": view, "age": age} for age, view in enumerate(poses.tolist())]
    again = cml.distances.as_label_distance(str(Choice(distance.name, distance.settings())))
    np.testing.assert_array_equal(whole(again, people), whole(distance, people))
    bad = [*people[:2], {"view": [*poses[0].tolist(), [[1, 2]]], "age": 1}]
    with pytest.raises(LabelError, match="Label 2 part 'view' member 2 should be a list of joints"):
        distance.encode(bad)
