"""The base class of data sources, ``DatasetSource``: a source and a task of one's own, and what a source must say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_examples import forget_modules, forget_plugins
from PIL import Image

import cml.data_prep
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.data_prep import Content, DatasetSource, Item
from cml.errors import UserError

OWN = '''
import dataclasses

import cml.data_prep
import cml.tasks
from cml.data_prep import Content, DatasetSource, Item
from cml.training.config import TrainConfig
from PIL import Image

cml.tasks.register(
    cml.tasks.Task(
        name="greys",
        summary="brightness of pictures",
        recipe=TrainConfig(backbone="small-cnn", weights="none", image_size=(32, 32), sampler="random(batch_size=8)"),
        draw=lambda image, label, info: image,
        describe=lambda label, info: f"{label:g}",
    )
)


@cml.data_prep.register("greys")
@dataclasses.dataclass(frozen=True)
class Greys(DatasetSource):
    """Plain pictures with their brightness."""

    count: int = 32
    """Number of pictures."""
    test_fraction: float = 0.5
    """Fraction of the pictures that are not for training."""

    task = "greys"

    def content(self, skip_bad: bool) -> Content:
        items = []
        for number in range(self.count):
            grey = number * 255 // self.count
            role = ("train", "train", "query", "gallery")[number % 4]
            items.append(Item(f"{number:03d}", role, Image.new("L", (32, 32), grey), float(grey)))
        return Content(items, details={})
'''


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """What a test registers, nobody else meets."""
    forget_plugins(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    yield
    forget_modules()


@dataclasses.dataclass(frozen=True)
class Plain(DatasetSource):
    """Pictures of one colour."""

    folder: Path | None = None

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        roles = ("train", "train", "query", "gallery")
        return Content([Item(str(n), roles[n % 4], Image.new("L", (16, 16), n), float(n)) for n in range(8)], {})


@pytest.mark.slow
def test_a_source_and_a_task_of_ones_own_by_plugin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "greys.py").write_text(OWN)
    plugin = ["--plugin", "greys.py"]
    assert main(["prepare", "greys", "--out", "data", "--count", "40", *plugin]) == 0
    assert "20 train, 10 query, 10 gallery items of task 'greys'" in capsys.readouterr().out
    info = PreparedDataset.open(Path("data")).info
    assert (info.name, info.task, info.label_column, info.label_unit) == ("greys", "greys", "value", "")
    assert main(["train", "greys", "--data", "data", "--out", "run", "--steps", "2", "--workers", "0", *plugin]) == 0
    assert main(["evaluate", "run", *plugin]) == 0
    capsys.readouterr()
    assert main(["prepare", "greys", "--out", "data", "--count", "40", "--test-fraction", "0.4", *plugin]) == 2
    assert "different settings (test_fraction was 0.5, now 0.4)" in capsys.readouterr().err
    assert main(["prepare", "greys", "--out", "other", "--test-fracton", "0.4", *plugin]) == 2
    assert "Did you mean --test-fraction" in capsys.readouterr().err
    assert main(["prepare", "greys", "--out", "other", "--test-fraction", "1", *plugin]) == 2
    assert "test_fraction (--test-fraction) should be above 0 and below 1" in capsys.readouterr().err


def test_the_texts_come_from_the_task_the_class_and_the_settings(tmp_path: Path) -> None:
    class Poses(Plain):
        task = "pose"

    class Named(Poses):
        name = "named"
        label_column = "depth"
        label_unit = "m"

        def content(self, skip_bad: bool) -> Content:
            return dataclasses.replace(super().content(skip_bad), texts={"task": "own", "source": "settings"})

    info = Poses().prepare(tmp_path / "poses").info
    assert (info.name, info.task, info.label_column, info.label_unit) == ("poses", "pose", "keypoints", "px")
    info = Named().prepare(tmp_path / "named").info
    assert (info.name, info.task, info.label_column, info.label_unit) == ("named", "own", "depth", "m")
    assert info.source == "settings"


def test_a_source_without_a_task_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The data source Plain should name its task: set the class attribute task"):
        Plain().prepare(tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_the_input_is_what_the_settings_name(tmp_path: Path) -> None:
    class Values(Plain):
        task = "value"

    (tmp_path / "in").mkdir()
    before = Values(tmp_path / "in").origin()
    (tmp_path / "in" / "1.png").write_bytes(b"1")
    after = Values(tmp_path / "in").origin()
    assert before["input"] != after["input"]
    assert before["settings"] == after["settings"] == {}
    (tmp_path / "in").rename(tmp_path / "moved")
    assert Values(tmp_path / "moved").origin() == after


def test_settings_are_recorded_under_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    lines = []
    for number in range(12):
        Image.new("L", (16, 16), number).save(folder / f"{number}.png")
        lines.append(json.dumps({"file_name": f"{number}.png", "value": number}))
    (tmp_path / "labels.jsonl").write_text("\n".join(lines))
    source: Any = cml.data_prep.get("folder", images=folder, labels=tmp_path / "labels.jsonl", test_fraction=0.5)
    dataset = source.prepare(tmp_path / "set")
    recorded = dataset.info.made_with["settings"]
    assert recorded["test_fraction"] == 0.5
