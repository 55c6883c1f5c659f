"""Label distances of few numbers by compiled loops: the digits of the plain formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Turn

from cml import distances
from cml.distances.euclidean import MOST_NUMBERS
from cml.distances.exact_products import squared_euclidean
from cml.errors import UserError


@pytest.mark.parametrize("dimension", [2, 3, 8, MOST_NUMBERS])
@pytest.mark.parametrize("squared", [False, True])
def test_sums_of_few_numbers_have_the_digits_of_products(dimension: int, squared: bool) -> None:
    rng = np.random.default_rng(dimension)
    rows = rng.normal(size=(130, dimension)).round(1) + 1e3 * rng.integers(0, 2, (130, 1))
    rows[7] = rows[3]
    distance = distances.get("euclidean", squared=squared)
    labels = distance.encode(rows)
    found = distance.pairwise(labels, labels)
    np.testing.assert_array_equal(found, squared_euclidean(rows, rows, root=not squared))
    assert found[7, 3] == 0


def test_more_labels_than_a_tile() -> None:
    rows = np.random.default_rng(0).normal(size=(1100, 2))
    distance = distances.get("euclidean")
    labels = distance.encode(rows)
    expected = np.sqrt((np.square(rows[:20, None, 0] - rows[:, 0])) + np.square(rows[:20, None, 1] - rows[:, 1]))
    np.testing.assert_array_equal(distance.pairwise(labels[:20], labels), expected.astype(np.float32))


def test_a_square_that_float32_cannot_hold_is_refused() -> None:
    rows = np.random.default_rng(0).normal(size=(130, 2))
    rows[5] = rows[4] + [0, 0]
    distance = distances.get("euclidean", squared=True)
    assert distance.pairwise(distance.encode(rows), distance.encode(rows))[5, 4] == 0
    rows[6] = [1e-30, 0]
    rows[7] = [0, 0]
    with pytest.raises(UserError, match="differ by less than 1e-19"):
        distance.pairwise(distance.encode(rows), distance.encode(rows))


@pytest.mark.parametrize("dimension", [1, 3])
@pytest.mark.parametrize("reduce", ["rms", "max"])
def test_circular_has_the_digits_of_the_remainder(dimension: int, reduce: str) -> None:
    numbers = np.random.default_rng(0).uniform(-800, 800, (300, dimension))
    numbers[:4] = np.array([[0.0], [360.0], [-360.0], [180.0]])
    distance = distances.get("circular", reduce=reduce)
    labels = distance.encode(numbers)
    phases = labels.arrays["phases"]
    ways = np.abs(phases[:, None] - phases) % 360.0
    ways = np.minimum(ways, 360.0 - ways)
    total = np.zeros(ways.shape[:2])
    for place in range(dimension):
        total += np.square(ways[:, :, place])
    expected = ways.max(axis=2) if reduce == "max" or dimension == 1 else np.sqrt(total / dimension)
    np.testing.assert_array_equal(distance.pairwise(labels, labels), expected.astype(np.float32))


@pytest.mark.parametrize("symmetry", ["none", "C4"])
def test_rotations_of_all_sizes_keep_their_digits(symmetry: str) -> None:
    rng = np.random.default_rng(0)
    axes = rng.normal(size=(400, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    degrees = np.concatenate([np.geomspace(1e-9, 1, 200), np.linspace(1, 180, 200)])
    distance = distances.get("rotation", form="rotvec", symmetry=symmetry)
    labels, origin = distance.encode(axes * degrees[:, None]), distance.encode(np.zeros((1, 3)) + 1e-300)
    found = distance.pairwise(origin, labels)[0]
    expected = degrees
    if symmetry != "none":
        turns = Turn.from_rotvec(axes * degrees[:, None], degrees=True)
        group = Turn.create_group(symmetry, axis="Z")
        expected = np.min([np.degrees((turn.inv() * turns).magnitude()) for turn in group], axis=0)
    np.testing.assert_allclose(found, expected, rtol=3e-7)
    assert distance.pairwise(labels, labels).diagonal().max() == 0
