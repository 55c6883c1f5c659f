"""Parts of one's own, each one file outside the repository, from start to end: by ``--plugin`` and by entry point."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cml
from cml import data_prep, distances, losses, models, plugins, sampling, tasks
from cml.cli import main

REGISTRIES = [tasks.registry, *(each.registry for each in (data_prep, distances, losses, models, sampling))]
PARTS = {
    "hours": '''
import cml.distances


@cml.distances.register("hours", unit="h", metric=True, symmetric=True)
def hours(a, b):
    """Time between two times of the day."""
    return min(abs(a - b), 24 - abs(a - b))
''',
    "stress": '''
import torch

import cml.losses
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import About


@cml.losses.register("stress")
class Stress(LabelDistanceLoss):
    """The squared difference between distances of embeddings and of labels."""

    about = About(cost="O(A B)", source="Kruskal, 1964", when="Absolute distances matter.")

    def __init__(self, scale: float = 0.1) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, embeddings, label_distances):
        found = torch.cdist(embeddings[: len(label_distances)], embeddings)
        return (found - self.scale * label_distances).square().mean()
''',
    "pairs": '''
from dataclasses import dataclass

import cml.sampling
from cml.sampling.lists import RandomBatches


@cml.sampling.register("pairs")
@dataclass(frozen=True)
class Pairs(RandomBatches):
    """Random batches that are small."""

    batch_size: int = 8
''',
    "tiny": '''
from torch import nn

import cml.models


@cml.models.register("tiny")
class Tiny(nn.Module):
    """One convolution."""

    features = 8

    def __init__(self, stride: int = 4) -> None:
        super().__init__()
        self.stages = nn.Conv2d(3, 8, 3, stride)

    def forward(self, pixels):
        return self.stages(pixels).mean(dim=(2, 3))
''',
    "clocks": '''
import math
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

import cml.data_prep
from cml.data.prepared import DatasetInfo
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.data_prep.source import made_with


@cml.data_prep.register("clocks")
@dataclass(frozen=True)
class Clocks:
    """Drawn clocks with one hand."""

    count: int = 40
    """How many clocks."""

    def prepare(self, out: Path, *, skip_bad: bool = False):
        origin = made_with(self, revision=1)
        if (done := already_prepared(out, origin)) is not None:
            return done
        items = []
        for number in range(self.count):
            image, hour = Image.new("RGB", (32, 32)), 24 * number / self.count
            angle = math.tau * hour / 24
            ImageDraw.Draw(image).line((16, 16, 16 + 14 * math.sin(angle), 16 - 14 * math.cos(angle)), width=2)
            role = ("train", "train", "query", "gallery")[number % 4]
            items.append(Item(f"{number:03d}", role, image, hour, quality=None))
        info = DatasetInfo(
            name="clocks", task="clock", label_column="value", label_unit="h", frame="", source="drawn", licence="",
            details={}, made_with=origin, counts={},
        )
        return write_dataset(out, info, items, skip_bad=skip_bad)
''',
    "clock": '''
import cml.tasks
from cml.training.config import TrainConfig

TASK = cml.tasks.register(
    cml.tasks.Task(
        name="clock",
        summary="times of the day",
        recipe=TrainConfig(
            label_distance="hours", loss="stress(scale=0.2)", sampler="pairs", backbone="tiny(stride=2)",
            weights="none", image_size=(32, 32), steps=2, dimension=4, workers=0,
        ),
        draw=lambda image, label, info: image,
        describe=lambda label, info: f"{label:g} h",
        variants={"stress": {"loss": "stress"}, "log-ratio": {"loss": "log-ratio"}},
    )
)
''',
}  # fmt: skip
POINTS = """
[cml.distances]
hours = own_hours:hours
[cml.losses]
stress = own_stress:Stress
[cml.samplers]
pairs = own_pairs:Pairs
[cml.backbones]
tiny = own_tiny:Tiny
[cml.sources]
clocks = own_clocks:Clocks
[cml.tasks]
clock = own_clock:TASK
"""
STEPS = [
    "prepare clocks --out data --count 32",
    "train clock --data data --out run",
    "evaluate run",
    "distances data --summary",
    "compare clock --data data --out compared --seeds 1",
    "gallery run",
]
OUTSIDE = """
import sys
from cml.cli import main
for line in sys.stdin.read().splitlines():
    code = main(line.split())
    if code:
        sys.exit(code)
"""


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers, nobody else meets; its folder is the working one, and keeps the cache."""
    forget_plugins(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    yield
    for name in [name for name in sys.modules if name.startswith("cml_plugin_")]:
        del sys.modules[name]


def forget_plugins(patch: pytest.MonkeyPatch) -> None:
    for registry in REGISTRIES:
        for name in ("_entries", "_origins", "_unread_group"):
            patch.setattr(registry, name, copy.copy(getattr(registry, name)))
    patch.setattr(plugins, "_loaded", {})


def check_results(folder: Path, needed: set[str]) -> None:
    config = json.loads((folder / "run" / "config.json").read_text())
    assert {name for name, _ in config["plugins"]} == needed
    assert config["train"]["loss"] == "stress(scale=0.2)"
    assert config["label_distance"] == "hours"
    evaluation = json.loads((folder / "run" / "evaluation.json").read_text())
    assert evaluation["unit"] == "h"
    assert (folder / "run" / "gallery.html").exists()
    assert (folder / "compared" / "table.md").read_text().count("| stress |") == 1


def test_by_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    flags = []
    for name, text in PARTS.items():
        (tmp_path / f"{name}.py").write_text(text)
        flags += ["--plugin", f"{name}.py"]
    with monkeypatch.context() as patch:
        forget_plugins(patch)
        for line in STEPS:
            assert main([*line.split(), *flags]) == 0
        check_results(tmp_path, {"hours.py", "stress.py", "pairs.py", "tiny.py", "clock.py"})
        (tmp_path / "hours.py").write_text(PARTS["hours"] + "\n")
        plugins.load("hours.py")
        with pytest.warns(UserWarning, match=r"The code of hours\.py has changed since the run was trained"):
            cml.open_run("run")
        (tmp_path / "hours.py").write_text(PARTS["hours"])

    # a stranger's run: nothing of it is imported, and the message says what to give
    capsys.readouterr()
    for line in ("evaluate run", "gallery run", "embed run --images data --out embedded"):
        assert main(line.split()) == 2
        said = capsys.readouterr().err
        assert said.count("error: ") == len(said.splitlines()) == 1
        assert "give --plugin clock.py --plugin hours.py" in said
    assert main(["evaluate", "run", *flags[:-2]]) == 2
    said = capsys.readouterr().err
    assert "Unknown task 'clock'" in said
    assert "give --plugin clock.py, or in Python call cml.load_plugin('clock.py') or import it" in said


def outside(folder: Path, lines: list[str]) -> subprocess.CompletedProcess[str]:
    """Run commands in a process of its own, to which the folder ``site`` is what pip has installed."""
    text = "\n".join(lines)
    return subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, 'site')\n{OUTSIDE}"],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=240,
    )


def install(folder: Path, points: str) -> None:
    metadata = folder / "site" / "own-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


def test_by_entry_point(tmp_path: Path) -> None:
    install(tmp_path, POINTS)
    for name, text in PARTS.items():
        (tmp_path / "site" / f"own_{name}.py").write_text(text)
    done = outside(tmp_path, STEPS)
    assert done.returncode == 0, done.stderr
    check_results(tmp_path, {"own_hours", "own_stress", "own_pairs", "own_tiny", "own_clock"})


def test_a_task_of_another_package_brings_a_label_distance_of_its_own(tmp_path: Path) -> None:
    """The distance is known once the task is imported, in each process anew."""
    install(tmp_path, "[cml.tasks]\nclock = own_task:TASK\n")
    clock = PARTS["clock"].replace('loss="stress(scale=0.2)", sampler="pairs", backbone="tiny(stride=2)"', "BASE")
    clock = clock.replace("BASE", 'sampler="random(batch_size=8)", backbone="small-cnn"')
    clock = clock.replace('"stress": {"loss": "stress"}', '"cosent": {"loss": "cosent"}')
    (tmp_path / "site" / "own_task.py").write_text(PARTS["hours"] + clock + PARTS["clocks"])
    prepared = ["train clock --data data --out run"]
    (tmp_path / "clocks.py").write_text(PARTS["clocks"])
    assert main(["prepare", "clocks", "--out", "data", "--count", "32", "--plugin", "clocks.py"]) == 0
    assert outside(tmp_path, prepared).returncode == 0
    for line in ("evaluate run", "distances data --summary --label-distance hours", "gallery run"):
        done = outside(tmp_path, [line])
        assert done.returncode == 0, done.stderr
    done = outside(tmp_path, ["compare clock --data data --out compared --seeds 1"])
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert [name for name, _ in config["plugins"]] == ["own_task"]
