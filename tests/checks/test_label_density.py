"""How surprising labels are among those of neighbours, against a slow reference and at its limits."""

from __future__ import annotations

import numpy as np
import pytest
import slow_label_density as slow

import cml
from cml.array_types import Float64
from cml.checks.label_density import LabelDensity, weigh_neighbors

COUNT, NEAR = 40, 12


def test_weights_are_those_of_the_slow_reference() -> None:
    distances = np.sort(np.random.default_rng(0).uniform(1, 2, (5, NEAR)), axis=1).astype(np.float32)
    expected = [slow.weigh_neighbors(row) for row in distances.tolist()]
    np.testing.assert_allclose(weigh_neighbors(distances), expected)
    np.testing.assert_allclose(weigh_neighbors(distances[:, :4]).sum(axis=1), 1)
    where_the_item_is = np.array([[0.0] * 10 + [1.0]], np.float32)
    np.testing.assert_allclose(weigh_neighbors(where_the_item_is), [[0.1] * 10 + [0]])


@pytest.mark.parametrize("kind", ["euclidean", "circular(period=3)", "classes"])
def test_surprise_is_that_of_the_slow_reference(kind: str) -> None:
    rng = np.random.default_rng(1)
    distance = cml.distances.get(kind)
    values = rng.normal(size=COUNT)
    labels = distance.encode([f"class {value:.0f}" for value in values] if kind == "classes" else values)
    apart = distance.pairwise(labels, labels).astype(np.float64)
    # the neighbours know the label, but for a few
    order = np.argsort(apart + rng.uniform(0, 0.5, apart.shape) + 9 * np.eye(COUNT), axis=1)[:, :NEAR]
    weights = weigh_neighbors(np.sort(rng.uniform(1, 2, (COUNT, NEAR)), axis=1).astype(np.float32))
    exchange = rng.permutation(COUNT)
    taken = np.concatenate([np.arange(COUNT), exchange])
    to_neighbors = apart[taken[:, None], np.tile(order, (2, 1))]
    density = LabelDensity(distance, labels)

    def total(bandwidth: float) -> float:
        rows = zip(to_neighbors[:COUNT].tolist(), weights.tolist(), apart.tolist(), strict=True)
        return sum(slow.log_likelihood(*row, bandwidth) for row in rows)

    chosen = max(density.bandwidths.tolist(), key=total)
    expected = [
        slow.surprise(near, list(weight), apart[label].tolist(), chosen)
        for near, weight, label in zip(to_neighbors.tolist(), np.tile(weights, (2, 1)).tolist(), taken, strict=True)
    ]
    got = density.surprise(taken, to_neighbors, np.tile(weights, (2, 1)))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.median(got[:COUNT]) < np.median(got[COUNT:])


def test_labels_that_cannot_be_compared_are_surprising_and_equal_labels_do_no_harm() -> None:
    distance = cml.distances.get("euclidean")
    labels = distance.encode(np.r_[np.zeros(COUNT - 1), 1.0])
    density = LabelDensity(distance, labels)
    assert np.isfinite(density.bandwidths).all()
    assert (density.bandwidths > 0).all()
    to_neighbors: Float64 = np.zeros((COUNT, NEAR))
    to_neighbors[0], to_neighbors[-1] = np.inf, 1
    got = density.surprise(np.arange(COUNT), to_neighbors, np.full((COUNT, NEAR), 1 / NEAR))
    assert np.isfinite(got).all()
    assert got[0] == got.max() == pytest.approx(-np.log(0.02))
    assert got[-1] > got[1]
