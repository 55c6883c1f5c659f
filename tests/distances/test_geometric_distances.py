"""Label distances that wrap around, turn in space, lie on the globe, or compare shapes and boxes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_label_distances as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation as Turn

from cml import distances
from cml.array_types import Float32
from cml.cli import main
from cml.distances import LabelDistance, LabelError
from cml.distances.poses.oks import COCO_SIGMAS
from cml.errors import UserError

Matrix = Float32
RNG = np.random.default_rng


def all_pairs(distance: LabelDistance, labels: Any) -> Matrix:  # noqa: ANN401 - a sequence of labels
    encoded = distance.encode(labels)
    block = distance.pairwise(encoded, encoded)
    # whatever the blocks: parts of the rows and columns give the same numbers
    np.testing.assert_array_equal(distance.pairwise(encoded[1:3], encoded[2:]), block[1:3, 2:])
    assert block.dtype == np.float32
    assert (block >= 0).all()
    assert not np.isnan(block).any()
    return block


def turns(count: int, seed: int = 0) -> Turn:
    """Rotations of all kinds: random, almost equal, half turns, and equal ones."""
    made = Turn.random(count, rng=RNG(seed))
    near = made[:3] * Turn.from_rotvec(RNG(seed).normal(0, 1e-7, (3, 3)))
    half = made[:2] * Turn.from_rotvec([[np.pi, 0, 0], [0, np.pi * (1 - 1e-9), 0]])
    return Turn.concatenate([made, near, half, made[:1]])


ANGLES = st.one_of(st.sampled_from([0.0, 180.0, -180.0, 359.999, 1e-7, 720.0, 1e9 + 0.5]), st.floats(-1e4, 1e4))


@settings(deadline=None, max_examples=60)
@given(st.data(), st.integers(1, 3), st.sampled_from([360.0, 24.0, 0.1, 6.283185307179586]), st.booleans())
def test_circular_equals_the_slow_formula(data: st.DataObject, dimension: int, period: float, largest: bool) -> None:
    rows = data.draw(st.lists(st.lists(ANGLES, min_size=dimension, max_size=dimension), min_size=3, max_size=8))
    distance = distances.get("circular", period=period, reduce="max" if largest else "rms")
    block = all_pairs(distance, rows)
    expected = [[slow.circular(a, b, period, largest) for b in rows] for a in rows]
    np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-6)  # the slow one loses digits of large numbers
    np.testing.assert_array_equal(block, block.T)
    assert block.max() <= np.float32(period / 2)


@settings(deadline=None, max_examples=40)
@given(st.lists(ANGLES, min_size=3, max_size=6), st.integers(-3, 3), st.floats(-1e3, 1e3))
def test_circular_does_not_see_whole_turns_nor_where_zero_lies(angles: list[float], turns: int, shift: float) -> None:
    distance = distances.get("circular")
    block = all_pairs(distance, angles)
    np.testing.assert_allclose(all_pairs(distance, [one + 360 * turns for one in angles]), block, atol=1e-4)
    np.testing.assert_allclose(all_pairs(distance, [one + shift for one in angles]), block, atol=1e-4)
    for i, j, k in itertools.permutations(range(len(angles)), 3):
        assert block[i, k] <= block[i, j] + block[j, k] + 1e-4


@pytest.mark.parametrize("symmetry", ["none", "C2", "C7", "D3", "tetrahedron", "cube", "icosahedron"])
def test_rotation_equals_scipy(symmetry: str) -> None:
    made = turns(12)
    groups = {"tetrahedron": "T", "cube": "O", "icosahedron": "I", "none": "C1"}
    group = Turn.create_group(groups.get(symmetry, symmetry))
    signs = RNG(1).choice([-1.0, 1.0], (len(made), 1))
    block = all_pairs(distances.get("rotation", symmetry=symmetry), made.as_quat() * signs)
    expected = np.array([[slow.rotation(a, b, group) for b in made] for a in made])
    np.testing.assert_allclose(block, expected, rtol=3e-7, atol=1e-6)
    assert block[0, -1] < 1e-13


def test_rotation_takes_every_form() -> None:
    made = turns(10)
    expected = all_pairs(distances.get("rotation"), made.as_quat())
    forms: list[tuple[dict[str, Any], Any]] = [
        ({"form": "quaternion", "scalar_first": True}, made.as_quat(scalar_first=True)),
        ({"form": "matrix"}, made.as_matrix()),
        ({"form": "matrix"}, made.as_matrix().reshape(-1, 9).tolist()),
        ({"form": "rotvec"}, made.as_rotvec(degrees=True)),
        ({"form": "euler", "order": "xyz"}, made.as_euler("xyz", degrees=True)),
    ]
    for options, labels in forms:
        block = all_pairs(distances.get("rotation", **options), list(labels))
        np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-5)


def test_rotation_is_the_same_seen_from_anywhere_and_without_the_symmetry_of_the_object() -> None:
    made, camera = turns(8), Turn.random(rng=RNG(3))
    plain = all_pairs(distances.get("rotation"), made.as_quat())
    np.testing.assert_allclose(
        all_pairs(distances.get("rotation"), (camera * made).as_quat()), plain, rtol=1e-5, atol=1e-5
    )
    quarter = distances.get("rotation", symmetry="C4")
    turned = (made * Turn.from_euler("z", 90, degrees=True)).as_quat()
    mixed = quarter.pairwise(quarter.encode(made.as_quat()), quarter.encode(turned))
    np.testing.assert_allclose(mixed, all_pairs(quarter, made.as_quat()), rtol=1e-5, atol=1e-5)
    assert quarter.label_vectors(quarter.encode(turned)) is None


def test_haversine_equals_the_angle_between_vectors() -> None:
    rng = RNG(0)
    places = np.column_stack([rng.uniform(-90, 90, 30), rng.uniform(-180, 360, 30)])
    close = places[:5] + rng.normal(0, 1e-7, (5, 2))  # a centimetre
    across = np.column_stack([-places[:5, 0], places[:5, 1] % 360 - 180 + 1e-6])
    rows = np.concatenate([np.clip(close, [-90, -180], [90, 360]), across, places, [[90, 0], [90, 120], [-90, 7]]])
    block = all_pairs(distances.get("haversine"), rows)
    expected = np.array([[slow.haversine(a, b) for b in rows] for a in rows])
    np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(block, block.T)
    assert block[-3, -2] < 1e-6  # a pole has every longitude


def test_place_equals_counted_points_and_two_known_cases() -> None:
    rng = RNG(0)
    views = np.column_stack([rng.uniform(0, 60, (12, 2)), rng.uniform(0, 360, 12)])
    distance = distances.get("place", coordinates="metres", degrees=80, metres=40)
    expected = np.array([[slow.place(a, b, 40, 80) for b in views] for a in views])
    np.testing.assert_allclose(all_pairs(distance, views), expected, atol=0.01)
    wide = all_pairs(distances.get("place", coordinates="metres", degrees=180), [[0, 0, 0], [0, 0, 180], [0, 0, 90]])
    np.testing.assert_allclose(wide, [[0, 1, 2 / 3], [1, 0, 2 / 3], [2 / 3, 2 / 3, 0]], atol=1e-6)


def test_place_on_the_globe_is_that_of_metres_and_knows_the_date_line() -> None:
    metres = np.array([[0, 0, 10], [20, 0, 30], [0, -15, 350], [900, 0, 0]])
    degree = 2 * np.pi * 6_371_008.8 / 360
    for latitude, longitude in ((0.0, 12.0), (60.0, -180.0), (-33.0, 179.9999)):
        east = longitude + metres[:, 0] / (degree * np.cos(np.radians(latitude)))
        globe = np.column_stack([latitude + metres[:, 1] / degree, (east + 180) % 360 - 180, metres[:, 2]])
        expected = all_pairs(distances.get("place", coordinates="metres"), metres)
        np.testing.assert_allclose(all_pairs(distances.get("place"), globe), expected, atol=1e-4)


@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize("reflection", [False, True])
@pytest.mark.parametrize("error", ["residual", "mpjpe"])
def test_procrustes_equals_the_decomposition(space: int, reflection: bool, error: str) -> None:
    points = RNG(space).normal(size=(20, 7, space))
    points[1] = 40 * points[0] + 1e3
    points[2] = points[0] * ([1, -1] if space == 2 else [1, 1, -1])
    points[3, :, 1:] = 0  # on a line: the rotation about it is free
    points[4] = points[3] * 2 + 1
    visible = np.ones((20, 7, 1))
    visible[5:, 2] = RNG(0).integers(0, 2, (15, 1))
    block = all_pairs(
        distances.get("procrustes", error=error, reflection=reflection), np.concatenate([points, visible], 2)
    )
    both = (visible[:, None] * visible[None] > 0)[..., 0]
    expected = np.array(
        [
            [
                slow.procrustes(
                    points[i][both[i, j]], points[j][both[i, j]], reflection=reflection, mpjpe=error == "mpjpe"
                )
                for j in range(20)
            ]
            for i in range(20)
        ]
    )
    np.testing.assert_allclose(block, expected, rtol=1e-6, atol=1e-6)
    if error == "residual":
        assert block[0, 1] == 0
        assert (block[0, 2] < 1e-9) == reflection


def test_procrustes_does_not_see_place_size_and_rotation() -> None:
    points, flags = RNG(0).normal(size=(9, 5, 3)), np.ones((9, 5, 1))
    moved = np.stack(
        [
            size * turn.apply(one) + shift
            for one, turn, size, shift in zip(
                points, Turn.random(9, rng=RNG(1)), RNG(2).uniform(0.1, 9, 9), RNG(3).normal(size=(9, 3)), strict=True
            )
        ]
    )
    distance = distances.get("procrustes")
    before, after = (all_pairs(distance, np.concatenate([one, flags], 2)) for one in (points, moved))
    np.testing.assert_allclose(after, before, atol=1e-6)
    np.testing.assert_allclose(before, before.T, atol=1e-6)


def test_procrustes_leaves_out_what_cannot_be_compared_and_knows_points_without_size() -> None:
    pose = [[0, 0, 1], [1, 0, 1], [0, 1, 1], [5, 5, 0]]
    other = [[0, 0, 1], [1, 0, 1], [9, 9, 0], [5, 5, 1]]
    point = [[2, 2, 1]] * 4
    block = all_pairs(distances.get("procrustes"), [pose, other, point])
    assert block.tolist() == [[0, np.inf, 1], [np.inf, 0, 1], [1, 1, 0]]


def test_oks_equals_the_loop_and_coco() -> None:
    rng = RNG(0)
    poses = np.concatenate([rng.uniform(0, 60, (10, 17, 2)), rng.random((10, 17, 1)) < 0.8], axis=2)
    poses[1, :, :2] = poses[0, :, :2] + rng.normal(0, 1e-3, (17, 2))
    block = all_pairs(distances.get("oks", area=900.0, min_shared=1), poses)
    expected = np.array([[slow.oks(a, b, COCO_SIGMAS, 900.0) for b in poses] for a in poses])
    np.testing.assert_allclose(block, expected, rtol=2e-7, atol=1e-12)
    np.testing.assert_array_equal(block, block.T)
    assert (np.diag(block) == 0).all()


def test_oks_equals_pycocotools() -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    rng = RNG(1)
    poses = np.concatenate([rng.uniform(0, 60, (6, 17, 2)), np.ones((6, 17, 1))], axis=2)
    block = all_pairs(distances.get("oks", area=700.0), poses)
    truth, found = COCO(), COCO()
    for index, coco in enumerate((truth, found)):
        rows = poses[index * 3 : index * 3 + 3] * [1, 1, 2]
        coco.dataset = {
            "images": [{"id": 1}],
            "categories": [{"id": 1}],
            "annotations": [
                {
                    "id": row + 1, "image_id": 1, "category_id": 1, "keypoints": pose.ravel().tolist(),
                    "num_keypoints": 17, "area": 700.0, "bbox": [0, 0, 60, 60], "iscrowd": 0, "score": 1.0 - row / 10,
                }
                for row, pose in enumerate(rows)
            ],
        }  # fmt: skip
        coco.createIndex()
    judge = COCOeval(truth, found, "keypoints")
    judge.params.imgIds, judge.params.catIds = [1], [1]
    judge._prepare()
    np.testing.assert_allclose(1 - block[3:, :3], judge.computeOks(1, 1), rtol=1e-6, atol=1e-7)


def test_oks_takes_the_area_of_the_box_where_none_is_given() -> None:
    pose = [[0, 0, 1], [10, 0, 1], [0, 4, 1], [99, 99, 0]]
    moved = [[1, 0, 1], [11, 0, 1], [1, 4, 1], [0, 0, 0]]
    sigmas = (0.1, 0.2, 0.3, 0.4)
    block = all_pairs(distances.get("oks", sigmas=sigmas), [pose, moved, pose])
    assert block[0, 1] == np.float32(slow.oks(pose, moved, sigmas, 0.53 * 40))


BOX = st.tuples(
    st.sampled_from(["bed", "desk"]), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.integers(1, 4)
).map(lambda box: [box[0], box[1], box[2], box[1] + box[3], box[2] + box[4]])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(BOX, max_size=4), min_size=3, max_size=5))
def test_boxes_equal_the_best_of_all_matchings(rows: list[list[list[Any]]]) -> None:
    block = all_pairs(distances.get("boxes"), rows)
    expected = [[slow.boxes(a, b) for b in rows] for a in rows]
    np.testing.assert_allclose(block, expected, atol=1e-6)
    for i, j, k in itertools.permutations(range(len(rows)), 3):
        assert block[i, k] <= block[i, j] + block[j, k] + 1e-6


FLAT = [[0, 0, 1], [1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("choice", "labels", "message"),
    [
        ("circular", [1, "north"], "Label 1 should be a number or a list of numbers. Got 'north'"),
        ("circular", [1, float("nan")], "Label 1 holds nan where a finite number"),
        ("rotation", [[0, 0, 0, 1], [0, 0, 0, 0]], "Label 1 is a quaternion of length 0, where 1 is meant"),
        ("rotation", [[0, 0, 1]], "Label 0 should be a quaternion of 4 numbers. It has 3"),
        ("rotation(form=matrix)", [np.eye(3), 2 * np.eye(3)], "Label 1 is not a rotation matrix"),
        ("rotation(form=matrix)", [np.diag([1, 1, -1])], "Label 0 is a matrix that mirrors: its determinant is -1"),
        ("rotation(form=matrix)", [np.eye(2)], "Label 0 should be a matrix of 3 rows of 3 numbers"),
        ("rotation(form=euler)", [[0, 1, None]], "Label 0 should be a number or a list of numbers"),
        ("haversine", [[0, 0], [200, 0]], r"Label 1 has the latitude 200; it should be in -90..90 degrees"),
        ("haversine", [[0, 400]], "Label 0 has the longitude 400; it should be in -180..360"),
        ("haversine", [[0, 0, 0]], r"Label 0 should be \[latitude, longitude\]. It has 3 numbers"),
        ("place", [[0, 0]], r"Label 0 should be \[latitude, longitude, heading\]. It has 2"),
        ("place", [[0, 0, 0], [91, 0, 0]], "Label 1 has the latitude 91"),
        ("place(coordinates=metres)", [[0]], r"Label 0 should be \[east, north, heading\]"),
        ("procrustes", [FLAT, FLAT[:2]], "Label 1 has 2 joints, the first has 3"),
        ("procrustes", [FLAT, [[0, 0, 0, 1]] * 3], "Label 1 has joints of 4 numbers, the first has joints of 3"),
        ("procrustes", [FLAT, "pose"], r"Label 1 should be a list of joints \[x, y, visible\] or \[x, y, z, visible\]"),
        ("procrustes", [[[0, 0, 2]] * 3], "Label 0 has visible=2 at joint 0"),
        ("oks(sigmas=(.1,.1,.1))", [[[np.nan, 0, 1]] * 3], r"Label 0 has the visible joint 0 at \(nan, 0\)"),
        (
            "boxes",
            [[["bed", 0, 0, 1, 1]], [["bed", 1, 0, 0, 1]]],
            r"Label 1 has the box \['bed', 1, 0, 0, 1\]: x0 < x1",
        ),
        ("boxes", [[["bed", 0, 0, 1]]], r"Label 0 should be a list of boxes .* Got \['bed', 0, 0, 1\] as box 0"),
        ("boxes", ["bed"], r"Label 0 should be a list of boxes \[class, x0, y0, x1, y1\]. Got 'bed'"),
        ("boxes", [[[1.5, 0, 0, 1, 1]]], "Label 0 should be a list of boxes"),
        ("boxes", [[["bed", 0, 0, float("inf"), 1]]], "Label 0 has the box"),
    ],
)
def test_broken_labels_are_named(choice: str, labels: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(LabelError, match=message):
        distances.get(choice).encode(labels)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("circular(period=0)", "'period' must be a finite number above 0. Got 0"),
        ("circular(reduce=sum)", "'reduce' must be rms or max. Got 'sum'"),
        ("rotation(form=angle)", "'form' must be one of quaternion, matrix, rotvec, euler. Got 'angle'"),
        ("rotation(order=xxz)", "'order' must be three axes"),
        ("rotation(symmetry=C1)", "'symmetry' must be none, C2 to C99"),
        ("place(degrees=200)", "'degrees' must be above 0 and at most 180. Got 200"),
        ("place(metres=0)", "'metres' must be a finite number above 0"),
        ("place(coordinates=utm)", "'coordinates' must be degrees or metres"),
        ("procrustes(min_shared=2)", "'min_shared' must be a whole number of at least 3. Got 2"),
        ("procrustes(error=l2)", "'error' must be residual or mpjpe"),
        ("oks(area=-1)", "'area' must be a finite number above 0"),
        ("oks(sigmas=(1,0))", "'sigmas' must be above 0"),
        ("oks(min_shared=0)", "'min_shared' must be a whole number of at least 1"),
    ],
)
def test_settings_out_of_range_are_named(choice: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        distances.get(choice)


def test_oks_wants_a_sigma_for_each_joint() -> None:
    with pytest.raises(UserError, match="Poses of 3 joints do not fit COCO's 17 joints; give 'sigmas'"):
        distances.get("oks").encode([FLAT])


@pytest.mark.parametrize(
    ("choice", "labels"),
    [
        ("circular", [1.0, 359.0, 90.0]),
        ("rotation", [[0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0]]),
        ("haversine", [[0, 0], [1, 1], [50, 7]]),
    ],
)
def test_vectors_for_a_regression_are_near_where_labels_are(choice: str, labels: list[Any]) -> None:
    distance = distances.get(choice)
    vectors = distance.label_vectors(distance.encode(labels))
    assert vectors is not None
    order = np.linalg.norm(vectors[:1] - vectors, axis=1).argsort()
    assert order.tolist() == all_pairs(distance, labels)[0].argsort(kind="stable").tolist()


def test_a_dataset_of_angles_is_compared_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Settings survive the way through the registry, a job and its files."""
    angles = RNG(0).uniform(0, 360, 40)
    (tmp_path / "images").mkdir()
    from PIL import Image

    lines = ["file_name,value"]
    for number, angle in enumerate(angles):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
        lines.append(f"{number}.png,{angle}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    folder = ["folder", "--images", str(tmp_path / "images"), "--labels", str(tmp_path / "labels.csv")]
    assert main(["prepare", *folder, "--out", str(tmp_path / "data")]) == 0
    options = ["--label-distance", "circular(period=360)", "--matrix", "--out", str(tmp_path / "job")]
    assert main(["distances", str(tmp_path / "data"), *options]) == 0
    capsys.readouterr()
    train = [json.loads(line) for line in (tmp_path / "data/train/metadata.jsonl").read_text().splitlines()]
    values = [one["value"] for one in train]
    expected = [[slow.circular([a], [b], 360, False) for b in values] for a in values]
    np.testing.assert_allclose(np.load(tmp_path / "job/matrix.npy"), expected, rtol=1e-6, atol=1e-6)


def test_circular_distances_are_the_same_with_and_without_periods_to_take_off() -> None:
    rng = np.random.default_rng(0)
    distance = distances.get("circular(period=24)")
    hours = rng.uniform(0, 24, 70)
    hours[:3] = 0, 12, 23.999
    within = distance.encode(hours)
    beyond = distance.encode([*hours[:-1], -1e-300])  # one negative phase, which has all of them reduced
    np.testing.assert_array_equal(
        distance.pairwise(within, within)[:-1, :-1], distance.pairwise(beyond, beyond)[:-1, :-1]
    )
    apart = np.abs(hours[:, None] - hours)
    np.testing.assert_array_equal(distance.pairwise(within, within), np.minimum(apart, 24 - apart).astype(np.float32))
