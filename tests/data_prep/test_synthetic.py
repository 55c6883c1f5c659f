"""The embedded dataset: reproducible, correctly labelled, anatomically possible, and as varied as real poses."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cml.data_prep.synthetic.people import people as synthetic
from cml.data_prep.synthetic.people.clothes import body_parts, sample_clothes
from cml.data_prep.synthetic.people.figure import (
    BACKWARD_ELEVATION,
    LIMITS,
    Figure,
    Proportions,
    clip_angles,
    pose_figure,
    turn,
)
from cml.data_prep.synthetic.people.people import JOINTS, People, draw_people
from cml.data_prep.synthetic.people.poses import sample_angles, sample_proportions
from cml.errors import UserError

SEEDS = st.integers(0, 2**32 - 1)
BONES = [
    ("hip", "knee", "thigh"),
    ("knee", "ankle", "shin"),
    ("shoulder", "elbow", "upper_arm"),
    ("elbow", "wrist", "forearm"),
    ("wrist", "finger", "hand"),
]
TRUNK = {name: 0.0 for name in LIMITS if name.startswith(("lean", "list", "spine", "neck"))}
NEUTRAL = TRUNK | {f"{side}_{name}": 0.0 for side in "rl" for name in LIMITS if name not in TRUNK}


@pytest.fixture(scope="module")
def people() -> People:
    return draw_people(60, seed=7)


def random_figure(seed: int) -> Figure:
    rng = np.random.default_rng(seed)
    return pose_figure(sample_angles(rng), sample_proportions(rng))


def column(name: str) -> int:
    return JOINTS.index(name)


def test_joint_order_is_that_of_mpii() -> None:
    assert JOINTS == (
        "r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax",
        "upper_neck", "head_top", "r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist",
    )  # fmt: skip


def test_shapes_and_types(people: People) -> None:
    assert people.images.shape == (60, 64, 64, 3)
    assert people.images.dtype == np.uint8
    assert people.keypoints.shape == (60, 16, 3)
    assert people.keypoints.dtype == np.float32
    assert np.isfinite(people.keypoints).all()
    assert people.images.std(axis=(1, 2, 3)).min() > 5  # nobody stands in the dark


def test_visible_is_inside(people: People) -> None:
    places, visible = people.keypoints[..., :2], people.keypoints[..., 2]
    inside = (places >= 0).all(-1) & (places < 64).all(-1)
    np.testing.assert_array_equal(visible, inside.astype(np.float32))


def test_an_item_depends_on_seed_and_position_alone(people: People) -> None:
    again = draw_people(23, seed=7)
    np.testing.assert_array_equal(again.images, people.images[:23])
    np.testing.assert_array_equal(again.keypoints, people.keypoints[:23])


def test_seeds_and_items_differ(people: People) -> None:
    other = draw_people(20, seed=8)
    known = {image.tobytes() for image in people.images}
    assert len(known) == 60
    assert not known & {image.tobytes() for image in other.images}
    assert not np.allclose(other.keypoints, people.keypoints[:20], atol=1.0)


def test_another_size_shows_the_same_people(people: People) -> None:
    large = draw_people(6, size=128, seed=7)
    np.testing.assert_allclose(large.keypoints[..., :2], 2 * people.keypoints[:6, :, :2], rtol=1e-5)
    halved = large.images.reshape(6, 64, 2, 64, 2, 3).mean(axis=(2, 4))
    assert np.abs(halved - people.images[:6]).mean() < 12  # the same scene but for noise and edges


@pytest.mark.slow
def test_workers_change_nothing() -> None:
    alone, together = draw_people(130, size=16, seed=3), draw_people(130, size=16, seed=3, workers=2)
    np.testing.assert_array_equal(alone.images, together.images)
    np.testing.assert_array_equal(alone.keypoints, together.keypoints)


def test_workers_that_cannot_start_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise BrokenProcessPool

    monkeypatch.setattr("cml.data_prep.synthetic.draw_items.ProcessPoolExecutor", broken)
    with pytest.raises(UserError, match="a worker process ended; with workers=2 call it from a script file"):
        draw_people(130, size=16, workers=2)


def test_joints_lie_on_the_drawn_figure(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "paint", lambda *arguments: None)
    empty = draw_people(60, seed=7)
    np.testing.assert_array_equal(empty.keypoints, people.keypoints)
    drawn = np.abs(people.images.astype(int) - empty.images).max(-1) > 12  # (60, 64, 64) where the person is

    def hits(places: NDArray[Any]) -> float:
        found = []
        for mask, points, visible in zip(drawn, places, people.keypoints[..., 2], strict=True):
            for (x, y), seen in zip(np.floor(points).astype(int), visible, strict=True):
                if seen and 0 <= x < 64:
                    found.append(mask[y, x])
        return float(np.mean(found))

    places = people.keypoints[..., :2]
    assert hits(places) > 0.94  # clutter in front and clothes coloured like what is behind hide the rest
    assert hits(places * np.array([-1, 1]) + np.array([64, 0])) < 0.65
    assert hits(places + np.array([5, 0])) < hits(places) - 0.15
    for mask, points in zip(drawn, places, strict=True):  # nothing is painted far from the joints
        rows, columns = np.nonzero(mask)
        low, high = points.min(0) - 14, points.max(0) + 14
        assert (columns > low[0]).all()
        assert (columns < high[0]).all()
        assert (rows > low[1]).all()
        assert (rows < high[1]).all()


def test_people_fill_the_crop() -> None:
    keypoints = draw_people(200, size=16, seed=1).keypoints
    assert keypoints[..., 2].mean() >= 0.95
    extent = np.ptp(keypoints[..., :2], axis=1).max(1) / 16
    assert 0.6 < np.median(extent) < 0.9
    assert (extent > 0.35).all()
    assert (extent < 1.15).all()
    middle = (keypoints[..., :2].min(1) + keypoints[..., :2].max(1)) / 32
    assert np.abs(middle - 0.5).max() < 0.101


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_angles_keep_to_the_limits(seed: int) -> None:
    angles = sample_angles(np.random.default_rng(seed))
    assert set(angles) == set(NEUTRAL)
    for name, angle in angles.items():
        low, high = LIMITS[name[2:] if name[1] == "_" else name]
        assert low <= angle <= high, name
    for side in "rl":
        assert angles[f"{side}_shoulder_plane"] >= -20 or angles[f"{side}_shoulder_elevation"] <= BACKWARD_ELEVATION


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_knees_and_elbows_bend_the_right_way(seed: int) -> None:
    figure = random_figure(seed)
    at = figure.points
    for side in "rl":
        thigh = at[f"{side}_knee"] - at[f"{side}_hip"]
        shin = at[f"{side}_ankle"] - at[f"{side}_knee"]
        foot = at[f"{side}_toe"] - at[f"{side}_ankle"]
        # From thigh to shin the leg turns backwards, from shin to toes forwards: about one axis, in opposite senses.
        assert np.cross(thigh, shin) @ np.cross(shin, foot) <= 1e-9
        upper = at[f"{side}_elbow"] - at[f"{side}_shoulder"]
        lower = at[f"{side}_wrist"] - at[f"{side}_elbow"]
        flexion = np.degrees(np.arccos(np.clip(upper @ lower / np.linalg.norm(upper) / np.linalg.norm(lower), -1, 1)))
        assert flexion <= LIMITS["elbow_flexion"][1] + 1e-6
        assert lower @ figure.frames[f"{side}_upper_arm"][:, 2] >= -1e-9  # the front of the upper arm
        assert abs(lower @ figure.frames[f"{side}_upper_arm"][:, 0]) < 1e-9  # a hinge: not sideways


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_bones_are_rigid(seed: int) -> None:
    figure = random_figure(seed)
    for side in "rl":
        for start, end, bone in BONES:
            length = np.linalg.norm(figure.points[f"{side}_{end}"] - figure.points[f"{side}_{start}"])
            assert length == pytest.approx(getattr(figure.proportions, bone))
            assert 0.6 < length / getattr(Proportions(), bone) < 1.3
    for frame in figure.frames.values():
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-12)
        assert np.linalg.det(frame) == pytest.approx(1.0)
    np.testing.assert_allclose(
        figure.points["pelvis"], (figure.points["r_hip"] + figure.points["l_hip"]) / 2, atol=1e-12
    )


@settings(deadline=None, max_examples=50)
@given(SEEDS)
def test_the_mirror_image_is_a_possible_person(seed: int) -> None:
    figure = random_figure(seed)
    mirrored = {}
    for name, angle in figure.angles.items():
        swapped = {"r_": "l_", "l_": "r_"}.get(name[:2], name[:2]) + name[2:]
        mirrored[swapped] = (
            -angle if name in ("list", "spine_side", "spine_twist", "neck_side", "neck_twist") else angle
        )
    assert clip_angles(mirrored) == mirrored
    swap = [column({"r_": "l_", "l_": "r_"}.get(name[:2], name[:2]) + name[2:]) for name in JOINTS]
    expected = figure.joints[swap] * [-1, 1, 1]
    np.testing.assert_allclose(pose_figure(mirrored, figure.proportions).joints, expected, atol=1e-12)


def test_each_angle_moves_what_it_names() -> None:
    def moved(name: str, angle: float, point: str) -> NDArray[Any]:
        changed = pose_figure(NEUTRAL | {name: angle}, Proportions())
        return changed.points[point] - pose_figure(NEUTRAL, Proportions()).points[point]

    x, y, z = 0, 1, 2
    assert moved("lean", 20, "head_top")[z] > 0.1
    assert moved("list", 20, "head_top")[x] > 0.1  # to the figure's left
    assert moved("spine_flexion", 20, "head_top")[z] > 0.1
    assert moved("spine_side", 20, "head_top")[x] > 0.1
    assert moved("spine_twist", 20, "l_shoulder")[z] < -0.05
    for side, left in (("r", -1), ("l", 1)):
        assert moved(f"{side}_hip_flexion", 40, f"{side}_knee")[z] > 0.2
        assert moved(f"{side}_hip_abduction", 40, f"{side}_knee")[x] * left > 0.2
        assert moved(f"{side}_hip_rotation", 40, f"{side}_toe")[x] * left > 0.1
        assert moved(f"{side}_knee_flexion", 40, f"{side}_ankle")[z] < -0.2
        assert moved(f"{side}_ankle_flexion", 20, f"{side}_toe")[y] > 0.05
        assert moved(f"{side}_elbow_flexion", 40, f"{side}_wrist")[z] > 0.2
        assert moved(f"{side}_shoulder_elevation", 90, f"{side}_elbow")[x] * left > 0.4
        forward = pose_figure(
            NEUTRAL | {f"{side}_shoulder_elevation": 90.0, f"{side}_shoulder_plane": 90.0}, Proportions()
        )
        assert (forward.points[f"{side}_elbow"] - forward.points[f"{side}_shoulder"])[z] > 0.5
        bent = NEUTRAL | {f"{side}_elbow_flexion": 90.0, f"{side}_shoulder_rotation": 60.0}
        inwards = pose_figure(bent, Proportions()).points
        assert (inwards[f"{side}_wrist"] - inwards[f"{side}_elbow"])[x] * left < -0.3


def test_right_is_the_persons_own_right() -> None:
    figure = pose_figure(NEUTRAL, Proportions())
    clothes = sample_clothes(np.random.default_rng(0))
    eye = (38, 28, 26)
    for yaw, eyes, sign in ((0.0, 2, -1), (180.0, 0, 1)):  # seen from the front, from behind
        view = turn("y", yaw)
        parts = body_parts(figure, clothes, view)
        assert sum(part.colour == eye for part in parts) == eyes
        seen = figure.joints @ view.T
        chin = seen[column("upper_neck"), 1] + 0.05
        head = [part for part in parts if all(centre[1] > chin for centre, _ in part.spheres)]
        nearest = max(head, key=lambda part: part.depth)
        assert nearest.colour == (clothes.hair if eyes == 0 else clothes.skin)  # the back of the head, or the nose
        for name in ("ankle", "knee", "hip", "wrist", "elbow", "shoulder"):
            assert np.sign(seen[column(f"r_{name}"), 0]) == sign
            assert np.sign(seen[column(f"l_{name}"), 0]) == -sign
    toes = (figure.points["r_toe"] - figure.points["r_heel"])[2]
    assert toes > 0  # and the toes point where the eyes look


@pytest.mark.slow
def test_spread_is_that_of_real_poses(real_data: Callable[[str], Path]) -> None:
    with (real_data("mpii_poses") / "train_joints.csv").open() as lines:
        real = np.array([row[1:33] for row in itertools.islice(csv.reader(lines), 4000)], float).reshape(-1, 16, 2)
    real = real[(real > 0).all((1, 2))]
    drawn = draw_people(600, size=16, seed=2).keypoints[..., :2].astype(float)

    def summary(poses: NDArray[Any]) -> tuple[NDArray[Any], float, float]:
        centred = poses - poses[:, [column("pelvis")]]
        torso = np.linalg.norm(centred[:, column("thorax")], axis=1)
        kept = torso > 0.12 * np.ptp(poses, axis=1).max(1)  # not seen along the spine
        centred = centred[kept] / torso[kept, None, None]
        low, high = np.percentile(centred, [16, 84], axis=0)
        wrists, shoulders = [column("r_wrist"), column("l_wrist")], [column("r_shoulder"), column("l_shoulder")]
        raised = (centred[:, wrists, 1] < centred[:, shoulders, 1]).mean()
        across, up = np.abs(centred[:, column("thorax"), 0]), -centred[:, column("thorax"), 1]
        return (high - low) / 2, float(raised), float((across > up).mean())

    (real_spread, real_raised, real_bent), (spread, raised, bent) = summary(real), summary(drawn)
    np.testing.assert_allclose(spread, real_spread, atol=0.18)
    assert raised == pytest.approx(real_raised, abs=0.05)
    assert bent == pytest.approx(real_bent, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be a whole number of at least 1, got 0"),
        ({"count": 2.5}, "count must be"),
        ({"count": True}, "count must be"),
        ({"count": 1, "size": 15}, "size must be a whole number of at least 16, got 15"),
        ({"count": 1, "seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"count": 1, "workers": 0}, "workers must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_people(**arguments)
