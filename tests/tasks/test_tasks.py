from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml import distances, tasks
from cml.cli import main
from cml.data.prepared import DatasetInfo
from cml.data_prep.synthetic.people.people import JOINTS, draw_people
from cml.errors import DataError, UserError
from cml.registry import Choice
from cml.tasks.pose import BONES
from cml.training.config import TrainConfig


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
    assert {"pose", "value"} <= set(tasks.names())
    with pytest.raises(UserError, match=r"Unknown task .poses.\. Did you mean .pose."):
        tasks.get("poses")


@pytest.mark.parametrize(
    ("chosen", "details", "taken"),
    [
        ("dataset", {}, "euclidean"),
        ("dataset", {"label_distance": "circular(period=24)"}, "circular(period=24)"),
        ("euclidean", {"label_distance": "circular(period=24)"}, "euclidean"),
    ],
)
def test_numbers_have_the_label_distance_that_their_dataset_names(
    chosen: str, details: dict[str, Any], taken: str
) -> None:
    task = tasks.get("value")
    assert task.recipe.label_distance == "dataset"
    assert task.label_distance(TrainConfig(label_distance=chosen), info(**details)) == taken


@pytest.mark.parametrize("named", ["precomputed(path=/etc)", "captions(vectors=x)", 3, "f("])
def test_a_dataset_names_no_label_distance_that_opens_files(named: object) -> None:
    task = tasks.get("value")
    with pytest.raises(UserError, match="should"):
        task.label_distance(task.recipe, info(label_distance=named))


SMALL = "--backbone small-cnn --weights none --image-size 32 32 --workers 0 --steps 2 --sampler random(batch_size=20)"

STRIPES = """
from dataclasses import replace

from cml.tasks.value import TASK as VALUE


def report(unit, info):
    return 100.0, "cm"


TASK = replace(VALUE, name="stripes", summary="widths of stripes", report=report, sample="people")
"""


@pytest.fixture
def third_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package as pip installs it: a module, and metadata with a line in the entry-point group."""
    site = tmp_path / "site"
    metadata = site / "stripes-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "stripes.py").write_text(STRIPES)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stripes\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[cml.tasks]\nstripes = stripes:TASK\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(tasks.registry, "_entries", {})
    monkeypatch.setattr(tasks.registry, "_unread_group", "cml.tasks")
    yield site
    sys.modules.pop("stripes", None)


def test_installed_task_of_another_package_is_found_trained_and_evaluated(
    third_party: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {"pose", "value", "stripes"} <= set(tasks.names())
    assert tasks.get("stripes").summary == "widths of stripes"
    lines = ["file_name,width"]
    for number in range(60):
        Image.fromarray(np.full((8, 8, 3), 4 * number, np.uint8)).save(tmp_path / f"{number}.png")
        lines.append(f"{number}.png,{number / 10}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data, out = tmp_path / "data", tmp_path / "run"
    prepare = f"prepare folder --images {tmp_path} --labels {tmp_path}/labels.csv --label-columns width --out {data}"
    assert main(prepare.split()) == 0
    assert main(f"train stripes --data {data} --out {out} {SMALL}".split()) == 0
    assert main(["evaluate", str(out), "--details"]) == 0
    assert "label_distance in cm" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["train"])
    assert "stripes" in capsys.readouterr().out


def test_task_that_is_no_longer_installed_is_unknown() -> None:
    assert "stripes" not in tasks.names()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caption", "classes", "layout", "pose", "value"])
def test_a_tasks_module_is_its_training_command(name: str) -> None:
    words = [sys.executable, "-m", f"cml.tasks.{name}"]
    root = Path(__file__).resolve().parents[2]
    asked = subprocess.run([*words, "--help"], cwd=root, capture_output=True, text=True, check=True, timeout=240)
    assert asked.stdout.startswith(f"usage: cml train {name}")
    wrong = subprocess.run([*words, "--data", "d"], cwd=root, capture_output=True, text=True, timeout=240)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith(f"error: cml train {name} needs --out.")


def test_pixels_of_the_papers_crops_are_reported_as_the_paper_does() -> None:
    report = tasks.get("pose").report
    assert report("px", info(image_size=[288, 288])) == (224 / 288, "px of the 224 px box")
    assert report("px", info()) == (1.0, "px")
    assert report("px^2", info(image_size=[288, 288])) == (1.0, "px^2")
    assert report("torso length", info(image_size=[288, 288])) == (1.0, "torso length")


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
