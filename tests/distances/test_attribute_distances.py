from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cml.array_types import Float32
from cml.distances import LabelDistance, name_sets
from cml.distances.cosine import Cosine
from cml.distances.hamming import Hamming
from cml.distances.jaccard import Jaccard
from cml.distances.labels import LabelError
from cml.errors import UserError


def whole(distance: LabelDistance, labels: Any) -> Float32:  # noqa: ANN401
    packed = distance.encode(labels)
    return distance.pairwise(packed, packed)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3).filter(any), min_size=1, max_size=8))
def test_cosine_equals_the_plain_loop(rows: list[list[int]]) -> None:
    found = whole(Cosine(), [*rows, [2.7 * x for x in rows[0]]])
    assert found[0, -1] == 0
    for i, a in enumerate(rows):
        for j, b in enumerate(rows):
            dot = sum(x * y for x, y in zip(a, b, strict=True))
            expected = 1 - dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
            assert found[i, j] == pytest.approx(expected, abs=1e-6)
            if np.linalg.matrix_rank(np.array([a, b])) == 1 and dot > 0:
                assert found[i, j] == 0


def test_cosine_of_one_direction_is_exactly_zero_whatever_the_length() -> None:
    rng = np.random.default_rng(0)
    directions, lengths = rng.normal(size=(300, 7)), 10 ** rng.uniform(-100, 15, (300, 1))
    found = Cosine().pairwise(Cosine().encode(list(directions)), Cosine().encode(list(directions * lengths)))
    assert (found.diagonal() == 0).all()
    assert np.count_nonzero(found) == 300 * 299


def test_cosine_keeps_the_digits_of_small_angles_and_takes_any_length() -> None:
    angle = 1e-6
    found = whole(Cosine(), [[1e-200, 0], [1e17 * math.cos(angle), 1e17 * math.sin(angle)]])
    assert found[0, 1] == pytest.approx(angle**2 / 2, rel=1e-5)


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d", "é"]), max_size=5)


@settings(deadline=None, max_examples=50)
@given(st.lists(NAMES, min_size=1, max_size=8), st.booleans())
def test_jaccard_equals_the_plain_loop(labels: list[list[str]], sparse: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_sets, "MOST_DENSE", 0 if sparse else 100)
        patch.setattr(name_sets, "_TILE", 3)
        found = whole(Jaccard(), labels)
        vectors = [[int(name in label) for name in "abcdé"] for label in labels]
        np.testing.assert_array_equal(whole(Jaccard(), vectors), found)
        np.testing.assert_array_equal(whole(Jaccard(), [set(label) for label in labels]), found)
    for i, a in enumerate(map(set, labels)):
        for j, b in enumerate(map(set, labels)):
            assert found[i, j] == np.float32(1 - len(a & b) / len(a | b) if a | b else 0)


VALUES = st.sampled_from([0, 1, 1.0, 1.5, "1", True, "red"])


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(1, 4))
def test_hamming_equals_the_plain_loop(data: st.DataObject, length: int) -> None:
    labels = data.draw(st.lists(st.lists(VALUES, min_size=length, max_size=length), min_size=1, max_size=8))
    found = whole(Hamming(), labels)
    for i, a in enumerate(labels):
        for j, b in enumerate(labels):
            assert found[i, j] == np.float32(sum(x != y for x, y in zip(a, b, strict=True)) / length)


@pytest.mark.parametrize(
    ("distance", "labels", "message"),
    [
        (Jaccard(), [["a"], ["a", 1]], r"Label 1 should be a set of names or a vector of 0 and 1. Got \['a', 1\]"),
        (Jaccard(), [[0, 1], [0, 2]], "Label 1 should be a set of names or a vector"),
        (Jaccard(), [{"a"}, {"a": 1}], "Label 1 should be a set of names"),
        (Jaccard(), [[0, 1], [0, 1, 1]], "Label 1 has 3 zeros and ones, the first such vector has 2"),
        (Hamming(), [[0, 1], [0, float("nan")]], "Label 1 holds nan, which is neither"),
        (Hamming(), ["ab", "cd"], "Label 0 should be a list of values. Got 'ab'"),
        (Cosine(), [[1, 2], [1, 2, 3]], "Label 1 has 3 numbers, the first has 2"),
    ],
)
def test_bad_attributes(distance: LabelDistance, labels: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(LabelError, match=message):
        distance.encode(labels)


def test_attributes_of_two_kinds_are_refused() -> None:
    with pytest.raises(UserError, match="Got both"):
        Jaccard().encode([["a"], [0, 1]])
    with pytest.raises(UserError, match="2 values against 3"):
        Hamming().pairwise(Hamming().encode([[0, 1]]), Hamming().encode([[0, 1, 1]]))
