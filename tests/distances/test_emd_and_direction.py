"""The earth mover's distance over ordered bins, and angles between directions, beside their slow formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import wasserstein_distance

import cml
from cml.array_types import Float64
from cml.distances import Direction, Emd
from cml.errors import UserError


@pytest.mark.parametrize("positions", [None, (0.0, 0.5, 2.0, 7.0)])
def test_emd_is_the_wasserstein_distance(positions: tuple[float, ...] | None) -> None:
    counts = np.random.default_rng(0).integers(0, 6, (12, 4)) + np.eye(12, 4, dtype=int)
    places = list(positions or range(4))
    distance = Emd(positions)
    labels = distance.encode(counts.tolist())
    expected = [[wasserstein_distance(places, places, a, b) for b in counts] for a in counts]
    assert distance.pairwise(labels, labels) == pytest.approx(np.array(expected), abs=1e-6)


def test_emd_refuses_what_are_no_bins() -> None:
    for positions in ((1.0,), (0.0, 0.0), (2.0, 1.0)):
        with pytest.raises(UserError, match="in ascending order"):
            Emd(positions)
    with pytest.raises(UserError, match="has 3 bins, but the labels have 2"):
        Emd((0.0, 1.0, 2.0)).encode([[1, 2], [3, 4]])
    with pytest.raises(UserError, match="is a distribution of zeros"):
        Emd().encode([[1, 2], [0, 0]])
    with pytest.raises(UserError, match="two or more bins"):
        Emd().encode([1, 2, 3])


def test_directions_keep_small_and_large_angles() -> None:
    angles = [0.0, 1e-5, 1e-3, 30.0, 90.0, 179.0, 179.999, 180.0]
    vectors = [[math.cos(math.radians(a)), math.sin(math.radians(a)), 0.0] for a in angles]
    distance = Direction()
    labels = distance.encode(vectors)
    assert distance.pairwise(labels[:1], labels)[0] == pytest.approx(np.array(angles), rel=1e-5, abs=1e-6)
    assert distance.labels_from_vectors(np.array([[0.0, 3.0, 4.0]])).tolist() == [[0.0, 0.6, 0.8]]


@pytest.mark.parametrize(("distance", "labels"), [("emd", np.eye(4) + 0.1), ("direction", np.eye(4)[:, :3] + 0.1)])
def test_fit_takes_them(distance: str, labels: Float64) -> None:
    rng = np.random.default_rng(0)
    which = rng.integers(0, 4, 40)
    x = np.eye(4)[which] + rng.normal(0, 0.1, (40, 4))
    model = cml.fit(x, labels[which], label_distance=distance, steps=3, sampler="random(batch_size=20)", seed=0)
    assert np.isfinite(model.embed(x)).all()
