"""Judged pairs and triplets as labels: what is known of any part of them, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from cml import PairJudgements, TripletJudgements, distances
from cml.distances import LabelError
from cml.errors import UserError

RNG = np.random.default_rng(0)
PAIRS = np.array([(i, j, RNG.random(), 1 + i % 2) for i in range(20) for j in range(i) if RNG.random() < 0.3])
TRIPLETS = np.array([RNG.choice(20, 3, replace=False) for _ in range(200)])


@pytest.mark.parametrize("rows", [range(20), range(3, 15), [7, 2, 2, 19, 0]])
def test_pairs_of_any_part(rows: list[int]) -> None:
    distance = distances.get("judged-pairs")
    labels = distance.encode(list(PairJudgements(PAIRS, 20)))[np.array(rows)]
    true = {(int(i), int(j)): (value, weight) for i, j, value, weight in PAIRS}
    true |= {(j, i): known for (i, j), known in true.items()}
    block = distance.pairwise(labels, labels)
    for a, i in enumerate(rows):
        for b, j in enumerate(rows):
            assert block[a, b] == pytest.approx(0 if i == j else true.get((i, j), (np.inf, 1))[0], rel=1e-6)
    known = distance.known_pairs(labels)
    assert known is not None
    assert known.weights is not None
    listed = {
        (a, b): (value, weight)
        for a, b, value, weight in zip(*(part.tolist() for part in known), strict=True)  # type: ignore[union-attr]
    }
    expected = {(a, b): true[i, j] for a, i in enumerate(rows) for b, j in enumerate(rows) if a < b and (i, j) in true}
    assert listed.keys() == expected.keys()
    for pair, values in listed.items():
        assert values == pytest.approx(expected[pair], rel=1e-6)


def test_a_judgement_that_only_one_of_two_labels_holds_is_found_from_both_sides() -> None:
    distance = distances.get("judged-pairs")
    asked, other = distance.encode([["0", "1 0.5"], ["2"]]), distance.encode([["1"], ["2"]])
    expected = np.array([[0.5, np.inf], [np.inf, 0]])
    np.testing.assert_array_equal(distance.pairwise(asked, other), expected)
    np.testing.assert_array_equal(distance.pairwise(other, asked), expected.T)


@pytest.mark.parametrize("rows", [list(range(20)), list(range(3, 15)), [7, 2, 19, 0]])
def test_triplets_of_any_part(rows: list[int]) -> None:
    distance = distances.get("judged-triplets")
    labels = distance.encode(list(TripletJudgements(TRIPLETS, 20)))[np.array(rows)]
    known = distance.known_triplets(labels)
    assert known is not None
    parts = zip(*(column.tolist() for column in known), strict=True)
    listed = sorted((*(rows[place] for place in part[:3]), part[3]) for part in parts)
    unique, counts = np.unique(TRIPLETS, axis=0, return_counts=True)
    within = [(*t, c) for t, c in zip(unique.tolist(), counts.tolist(), strict=True) if set(t) <= set(rows)]
    assert listed == sorted(within)
    block = distance.pairwise(labels, labels)
    assert (block.diagonal() == 0).all()
    assert np.isinf(block[~np.eye(len(rows), dtype=bool)]).all()
    with pytest.raises(UserError, match="Judged triplets are orders and have no distances: take loss=logistic-triplet"):
        distance.known_pairs(labels)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("judged-pairs", []),
        ("judged-pairs", 3),
        ("judged-pairs", ["-1", "2 0.5"]),
        ("judged-pairs", ["1", "2"]),
        ("judged-pairs", ["1", "2 -0.5"]),
        ("judged-pairs", ["1", "2 0.5 0"]),
        ("judged-pairs", ["1", "2 nan"]),
        ("judged-pairs", ["1", "99999999999 1"]),
        ("judged-triplets", ["1", "2"]),
        ("judged-triplets", ["1", "2 2"]),
        ("judged-triplets", ["1", "2 3 0"]),
        ("judged-triplets", ["1", "2 3 1 4"]),
        ("judged-triplets", ["1", 5]),
    ],
)
def test_labels_of_another_form(name: str, label: object) -> None:
    with pytest.raises(LabelError, match="Label 1 should be a list of texts such as"):
        distances.get(name).encode([["0"], label])
