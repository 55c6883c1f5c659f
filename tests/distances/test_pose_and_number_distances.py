from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cml.array_types import Float64
from cml.distances import exact_products
from cml.distances.euclidean import Euclidean
from cml.distances.labels import LabelError
from cml.distances.poses.keypoints import Keypoints
from cml.errors import UserError

Pose = Float64
MPII_TORSO = ((2, 3), (12, 13))
# far from the origin with small differences, ties, and all kinds of sizes: what rounding is worst at
COORDINATES = st.one_of(
    st.sampled_from([0.0, 1.0, 1e6, 1e6 + 0.1, 1e6 + 0.2, 1e-3]), st.floats(-1e3, 1e3), st.integers(-5, 5).map(float)
)


def slow_squares(a: list[float], b: list[float]) -> float:
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += (x - y) ** 2
    return total


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(1, 5), st.booleans())
def test_euclidean_equals_the_plain_loop_to_the_last_bit(data: st.DataObject, dimension: int, squared: bool) -> None:
    row = st.lists(COORDINATES, min_size=dimension, max_size=dimension)
    rows = data.draw(st.lists(row, min_size=1, max_size=8))
    rows += data.draw(st.lists(st.sampled_from(rows), max_size=3))
    if squared:  # float32 has no squares of the least differences, which are refused
        rows = [[round(number, 9) for number in row] for row in rows]
    distance = Euclidean(squared=squared)
    labels = distance.encode(rows if dimension > 1 else [row[0] for row in rows])
    squares = [[slow_squares(a, b) for b in rows] for a in rows]
    expected = squares if squared else np.sqrt(squares)
    np.testing.assert_array_equal(distance.pairwise(labels, labels), np.array(expected, np.float32))


def test_euclidean_exact_over_several_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_products, "TILE_ROWS", 5)
    monkeypatch.setattr(exact_products, "TILE_COLUMNS", 7)
    monkeypatch.setattr(exact_products, "_DIRECT_BYTES", 100)
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(1e5, 1e-2, (12, 6)), 2, axis=0)
    vectors[3] = 1e9
    distance = Euclidean(squared=True)
    labels = distance.encode(list(vectors))
    expected = [[slow_squares(a, b) for b in vectors.tolist()] for a in vectors.tolist()]
    np.testing.assert_array_equal(distance.pairwise(labels, labels), np.array(expected, np.float32))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1, 2], [1, 2, 3]], "Label 1 has 3 numbers, the first has 2"),
        ([1, [1, 2]], "Label 1 has 2 numbers, the first has 1"),
        ([1, float("nan")], "Label 1 holds nan where a finite number should be"),
        (np.array([1, np.inf]), "Label 1 holds inf"),
        ([1, 1e30], "Label 1 has a length above 1e.18"),
        ([1, None], "Label 1 should be a number or a list of numbers. Got None"),
        ([1, [[1]]], r"Label 1 should be a number or a list of numbers. Got \[\[1\]\]"),
        ([1, [1, [2, 3]]], "Label 1 should be a number"),
        ([[], []], "Label 0 is an empty list"),
    ],
)
def test_euclidean_refuses(labels: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(LabelError, match=message):
        Euclidean().encode(labels)


def test_euclidean_refuses_sides_of_different_length() -> None:
    with pytest.raises(UserError, match="2 numbers against 1"):
        Euclidean().pairwise(Euclidean().encode([[1, 2]]), Euclidean().encode([1]))


def slow_pose(distance: Keypoints, a: Pose, b: Pose) -> float:
    for pose in (a, b) if distance.torso else ():
        joints = [pose[j] for group in distance.torso or () for j in group]
        if not all(joint[2] for joint in joints) or torso_length(distance, pose) == 0:
            return math.inf
    size_a, size_b = (torso_length(distance, pose) if distance.torso else 1.0 for pose in (a, b))
    shared = [j for j in range(len(a)) if a[j][2] and b[j][2]]
    if len(shared) < distance.min_shared:
        return math.inf
    x = [a[j][0] / size_a - b[j][0] / size_b for j in shared]
    y = [a[j][1] / size_a - b[j][1] / size_b for j in shared]
    if "centered" in distance.normalization:
        x = [value - sum(x) / len(x) for value in x]
        y = [value - sum(y) / len(y) for value in y]
    mean = sum(dx * dx + dy * dy for dx, dy in zip(x, y, strict=True)) / len(shared)
    return mean if distance.squared else math.sqrt(mean)


def torso_length(distance: Keypoints, pose: Pose) -> float:
    assert distance.torso is not None
    ends = [[sum(pose[j][k] for j in group) / len(group) for k in (0, 1)] for group in distance.torso]
    return math.dist(*ends)


POSES = st.integers(4, 6).flatmap(
    lambda joints: st.lists(
        st.lists(st.tuples(COORDINATES, COORDINATES, st.sampled_from([0, 1, 1])), min_size=joints, max_size=joints),
        min_size=1,
        max_size=6,
    )
)


@settings(deadline=None, max_examples=50)
@given(POSES, st.integers(1, 4), st.booleans())
def test_keypoints_in_the_crop_equal_the_plain_loop_to_the_last_bit(poses: Any, shared: int, squared: bool) -> None:  # noqa: ANN401
    distance = Keypoints(min_shared=shared, squared=squared)
    poses = [np.array(pose, float) for pose in [*poses, poses[0]]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = distance.encode(poses)
    expected = [[slow_pose(distance, a, b) for b in poses] for a in poses]
    np.testing.assert_array_equal(distance.pairwise(labels, labels), np.array(expected, np.float32))


@settings(deadline=None, max_examples=50)
@given(POSES, st.sampled_from(["torso", "centered", "torso_centered"]), st.booleans())
def test_normalised_keypoints_equal_the_plain_loop(poses: Any, normalization: Any, squared: bool) -> None:  # noqa: ANN401
    torso = ((0, 1), (2, 3)) if "torso" in normalization else None
    distance = Keypoints(normalization, min_shared=2, torso=torso, squared=squared)
    poses = [np.array(pose, float) for pose in [*poses, poses[0]]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        labels = distance.encode(poses)
    found = distance.pairwise(labels, labels)
    np.testing.assert_array_equal(found, found.T)
    assert found[0, -1] == found[0, 0]
    for i, a in enumerate(poses):
        for j, b in enumerate(poses):
            longest = max(np.abs(pose[:, :2]).max() for pose in (a, b))
            shortest = min(torso_length(distance, pose) for pose in (a, b)) if torso else 1.0
            if torso and shortest <= 1e-5 * longest:
                continue  # the border of what counts as a torso
            expected = slow_pose(distance, a, b)
            error = 1e-13 * (longest / shortest) ** (2 if squared else 1) + (
                0 if squared else 1e-7 * longest / shortest
            )
            assert found[i, j] == pytest.approx(expected, rel=1e-6, abs=error) or expected == found[i, j]


def person(rng: np.random.Generator) -> Pose:
    return np.concatenate([rng.uniform(20, 200, (16, 2)), np.ones((16, 1))], axis=1)


def test_each_normalisation_takes_out_what_it_says() -> None:
    pose = person(np.random.default_rng(0))
    moved, grown, both = (pose.copy() for _ in range(3))
    moved[:, :2] += (17.3, -11.1)
    grown[:, :2] *= 1.7
    both[:, :2] = pose[:, :2] * 0.3 + 40.7
    for normalization, equal in (
        ("crop", [False, False, False]),
        ("centered", [True, False, False]),
        ("torso", [False, True, False]),
        ("torso_centered", [True, True, True]),
    ):
        torso = MPII_TORSO if "torso" in normalization else None
        distance = Keypoints(normalization, torso=torso)  # type: ignore[arg-type]
        labels = distance.encode([pose, moved, grown, both])
        assert (distance.pairwise(labels[:1], labels[1:])[0] == 0).tolist() == equal, normalization


def test_poses_far_from_the_origin_are_equal_up_to_the_rounding_of_their_coordinates() -> None:
    pose = person(np.random.default_rng(0))
    far, farther = pose.copy(), pose.copy()
    far[:, :2] += 1e14  # leaves coordinates with steps of 0.016
    farther[:, :2] -= 1e17  # steps of 16
    distance = Keypoints("centered")
    labels = distance.encode([pose, far, farther])
    assert (distance.pairwise(labels, labels) == 0).all()


def test_few_shared_joints_are_no_comparison_and_hidden_junk_is_not_read() -> None:
    pose = person(np.random.default_rng(0))
    half, other = pose.copy(), pose.copy()
    half[:8] = (np.nan, np.inf, 0)
    other[8:, :] = (1e300, -5, 0)
    distance = Keypoints(min_shared=8)
    labels = distance.encode([pose, half, other])
    expected = [[0, 0, 0], [0, 0, np.inf], [0, np.inf, 0]]
    np.testing.assert_array_equal(distance.pairwise(labels, labels), expected)


def test_poses_that_compare_with_nothing_are_counted() -> None:
    pose = person(np.random.default_rng(0))
    hidden, flat, bare = pose.copy(), pose.copy(), pose.copy()
    hidden[2, 2] = 0
    flat[[2, 3, 12, 13], :2] = 50
    bare[2:, 2] = 0
    with pytest.warns(UserWarning, match=r"3 of 4 poses have fewer than 3 usable joints \(3 of them without a measur"):
        labels = Keypoints("torso", torso=MPII_TORSO).encode([pose, hidden, flat, bare])
    block = Keypoints("torso", torso=MPII_TORSO).pairwise(labels, labels)
    assert np.isinf(block).sum() == 15
    with pytest.warns(UserWarning, match=r"1 of 2 poses have fewer than 3 usable joints and cannot"):
        Keypoints().encode([pose, bare])


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"normalization": "scale"}, "must be one of crop, torso, centered, torso_centered. Got 'scale'"),
        ({"min_shared": 0}, "at least 1 with normalization=crop. Got 0"),
        ({"min_shared": 1, "normalization": "centered"}, "at least 2 with normalization=centered. Got 1"),
        ({"min_shared": 2.5}, "whole number"),
        ({"normalization": "torso"}, "needs 'torso'"),
        ({"normalization": "torso", "torso": ((1, 2), ())}, "needs 'torso'"),
        ({"normalization": "torso", "torso": (1, 2)}, "needs 'torso'"),
        ({"normalization": "torso", "torso": ((1,), (1,))}, "two different groups"),
        ({"torso": ((1,), (2,))}, "only used by torso normalisations"),
    ],
)
def test_keypoints_settings(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Keypoints(**chosen)


def test_torso_may_come_as_lists_from_a_saved_config() -> None:
    pose = person(np.random.default_rng(0))
    distance = Keypoints("torso", torso=[[2, 3], [12, 13]])  # type: ignore[arg-type]
    assert distance == Keypoints("torso", torso=MPII_TORSO)
    with pytest.raises(UserError, match="names joint 13, but poses have joints 0 to 9"):
        distance.encode([pose[:10]])


@pytest.mark.parametrize(
    ("pose", "message"),
    [
        ([[1, 2, 1]] * 3, "Label 1 has 3 joints, the first has 4"),
        ([[1, 2]] * 4, "Label 1 should be a list of joints"),
        ([[1, 2, 1], [1, 2, "x"], [1, 2, 1], [1, 2, 1]], "Label 1 should be a list of joints"),
        ([[1, 2, 2]] * 4, "Label 1 has visible=2 at joint 0; it should be 0"),
        ([[1, 2, 1], [np.inf, 2, 1], [0, 0, 0], [0, 0, 0]], r"Label 1 has the visible joint 1 at \(inf, 2\)"),
        ([[1, 2, 1], [1e19, 2, 1], [0, 0, 0], [0, 0, 0]], r"Label 1 has the visible joint 1 at \(1e\+19, 2\)"),
        (7, "Label 1 should be a list of joints"),
    ],
)
def test_keypoints_refuses(pose: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(LabelError, match=message):
        Keypoints().encode([[[1, 2, 1]] * 4, pose])


def test_keypoints_refuses_too_few_joints_and_two_kinds_of_pose() -> None:
    with pytest.raises(UserError, match="Poses of 2 joints can never share 3"):
        Keypoints().encode([[[1, 2, 1]] * 2])
    four, five = (Keypoints().encode([[[1, 2, 1]] * joints]) for joints in (4, 5))
    with pytest.raises(UserError, match="have 4 and 5 joints"):
        Keypoints().pairwise(four, five)


def test_neighbors_of_real_poses_equal_the_plain_formula(real_data: Callable[[str], Path]) -> None:
    lines = (real_data("mpii_poses") / "test_joints.csv").read_text().splitlines()[:400]
    joints = np.array([line.split(",")[1:] for line in lines], float).reshape(-1, 16, 2)
    visible = np.all(joints > 0, axis=2)
    distance = Keypoints()
    found = distance.neighbors(distance.encode(np.dstack([joints, visible]).tolist()), 10, block_bytes=1 << 16)
    for i in range(0, 400, 57):
        both = visible & visible[i : i + 1]
        squares = np.square(joints - joints[i]).sum(axis=2)
        mean = (squares * both).sum(axis=1) / both.sum(axis=1)
        mean[both.sum(axis=1) < 3] = mean[i] = np.inf
        np.testing.assert_array_equal(found.ids[i], np.argsort(mean, kind="stable")[:10])
        np.testing.assert_allclose(found.distances[i], np.sort(mean)[:10], rtol=1e-6)
