from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

import tasks
from cml import distances
from cml.data.prepared import DatasetInfo
from cml.data.synthetic import JOINTS, draw_people
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.training.config import TrainConfig
from tasks.pose import BONES


def info(**details: object) -> DatasetInfo:
    return DatasetInfo(
        name="people",
        task="pose",
        label_column="keypoints",
        label_unit="px",
        frame="",
        source="",
        licence="",
        details={"joints": list(JOINTS), "image_size": [64, 64], **details},
        made_with={},
        counts={},
    )


def test_tasks_are_found_by_name() -> None:
    assert {"pose", "value"} <= set(tasks.registry().names())
    with pytest.raises(UserError, match=r"Unknown task .poses.\. Did you mean .pose."):
        tasks.get("poses")


@pytest.mark.parametrize("name", ["pose", "value"])
def test_every_variant_is_a_recipe_that_can_be_made(name: str) -> None:
    from dataclasses import replace

    from cml import losses, sampling

    task = tasks.get(name)
    for changes in task.variants.values():
        config = replace(task.recipe, **changes)
        losses.registry.make(config.loss)
        sampling.registry.make(config.sampler)


def test_mirrored_pose_is_the_mirrored_persons_pose() -> None:
    task = tasks.get("pose")
    assert task.mirror is not None
    pose = draw_people(1, size=64).keypoints[0].tolist()
    turned = task.mirror(pose, info())
    wrist, other = JOINTS.index("r_wrist"), JOINTS.index("l_wrist")
    assert turned[wrist][0] == pytest.approx(64 - pose[other][0])
    assert turned[wrist][1:] == pose[other][1:]
    head = JOINTS.index("head_top")
    assert turned[head][0] == pytest.approx(64 - pose[head][0])
    np.testing.assert_allclose(task.mirror(turned, info()), pose, atol=1e-4)


def test_label_distance_between_mirrored_poses_is_that_between_the_poses() -> None:
    task = tasks.get("pose")
    assert task.mirror is not None
    poses = draw_people(12, size=64).keypoints.tolist()
    distance = distances.registry.make(task.label_distance(task.recipe, info()))
    plain = distance.encode(poses)
    turned = distance.encode([task.mirror(pose, info()) for pose in poses])
    np.testing.assert_allclose(distance.pairwise(turned, turned), distance.pairwise(plain, plain), rtol=1e-4, atol=1e-3)


def test_torso_normalisation_finds_its_joints() -> None:
    recipe = TrainConfig(label_distance="keypoints(normalization=torso, squared=False)")
    choice = Choice.parse(tasks.get("pose").label_distance(recipe, info()))
    hips, shoulders = choice.settings["torso"]
    assert [JOINTS[index] for index in hips] == ["r_hip", "l_hip"]
    assert [JOINTS[index] for index in shoulders] == ["r_shoulder", "l_shoulder"]
    assert choice.settings["squared"] is False
    bare = TrainConfig(label_distance="keypoints(normalization=torso)")
    distances.registry.make(tasks.get("pose").label_distance(bare, info()))


def test_skeleton_is_drawn_at_the_joints() -> None:
    people = draw_people(1, size=64)
    image = Image.fromarray(people.images[0]).resize((192, 192))
    drawn = tasks.get("pose").draw(image, people.keypoints[0].tolist(), info())
    changed = np.abs(np.asarray(drawn).astype(int) - np.asarray(image).astype(int)).sum(axis=2) > 60
    for joint in {name for bone in BONES for name in bone} & set(JOINTS):
        x, y, visible = people.keypoints[0][JOINTS.index(joint)]
        if visible:
            row, column = min(191, int(3 * y)), min(191, int(3 * x))
            assert changed[max(0, row - 3) : row + 4, max(0, column - 3) : column + 4].any(), joint


def test_dataset_without_joint_names_is_refused() -> None:
    for names in (None, "r_ankle", [1, 2]):
        with pytest.raises(DataError, match="must list the joints' names"):
            tasks.get("pose").draw(Image.new("RGB", (64, 64)), [[1.0, 1.0, 1.0]], info(joints=names))


def test_numbers_are_said_in_words() -> None:
    task = tasks.get("value")
    assert task.describe(-0.12345, info()) == "-0.123"
    assert task.describe([1.0, 2.5], info()) == "1, 2.5"
