"""Published experiments run end to end on small files in the real form, and say what is a piece or was not run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_caption_sources import coco_folder
from test_class_sources import cars, cub, in_shop, sop  # noqa: F401 - fixtures
from test_layout_sources import write_lsun
from test_pose_sources import mpii_folder, mpii_people

from cml import tasks
from cml.cli import main
from cml.data_prep.cars import Cars
from cml.data_prep.coco_captions import CocoCaptions
from cml.data_prep.cub import Cub
from cml.data_prep.in_shop import InShop
from cml.data_prep.lsun_layout import LsunLayout
from cml.data_prep.sop import Sop
from cml.losses import get as loss
from cml.runs import reproduce
from cml.runs.rows import with_changes
from cml.sampling import get as sampler
from cml.tasks.papers import PAPERS

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--steps", "2", "--workers", "0"]
EXPERIMENTS = [(paper, name) for paper, one in PAPERS.items() for name in one]
SOURCES: dict[str, Callable[[Path], Any]] = {
    "mpii": lambda raw: mpii_folder(raw, mpii_people()),
    "lsun": lambda raw: LsunLayout(write_lsun(raw)),
    "coco": lambda raw: CocoCaptions(
        coco_folder(raw, year=2014, train=list(range(100, 110)), val=list(range(200, 220))), year=2014
    ),
}
CLASSES: dict[str, Callable[[Path], Any]] = {"cub": Cub, "cars": Cars, "sop": Sop, "in-shop": InShop}


@pytest.mark.parametrize(("paper", "name"), EXPERIMENTS)
def test_each_experiment_runs_on_a_piece(
    paper: str, name: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in SOURCES:
        source, batches = SOURCES[name](tmp_path / "raw"), "dense(batch_size=8, nearest=2)"
    else:
        source, batches = CLASSES[name](request.getfixturevalue(name.replace("-", "_"))), "random(batch_size=4)"
    source.prepare(tmp_path / "data")
    out = tmp_path / "out"
    words = ["reproduce", paper, name, "--data", str(tmp_path / "data"), "--out", str(out), *SMALL]
    assert main([*words, "--sampler", batches, "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "This is a piece, which says nothing" in said
    assert "backbone is small-cnn, not resnet" in said
    made = json.loads((out / "reproduction.json").read_text("utf-8"))
    assert all(one["ours"] is not None and one["difference"] is None for one in made["figures"])
    assert made["not_run"] == {}
    assert {one["method"] for one in made["figures"]} == {row.name for row in PAPERS[paper][name].rows}
    assert (out / "reproduction.md").read_text("utf-8").startswith("| method |")
    if name != "sop":
        return
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    assert main([*words, "--sampler", batches, "--device", "cpu"]) == 0  # what is finished stays
    assert stamps == {path: path.stat().st_mtime_ns for path in out.rglob("model.safetensors")}
    other = ["reproduce", paper, "cub", *words[3:]]
    assert main([*other, "--sampler", batches]) == 2
    assert "holds 'sop', not 'cub': cml prepare cub" in capsys.readouterr().err


@pytest.mark.parametrize(("paper", "name"), EXPERIMENTS)
def test_published_settings_are_settings_of_cml(paper: str, name: str) -> None:
    experiment = PAPERS[paper][name]
    assert experiment.task in tasks.names()
    for row in experiment.rows:
        config = with_changes(experiment.config, row.changes)
        loss(config.loss)
        sampler(config.sampler)
        assert bool(row.figures) == bool(row.source)
        assert all(0 < figure < 1 for figure in row.figures.values())


def test_without_data_the_published_figures_and_a_forecast_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "_seconds_an_image", lambda config, device: 0.01)
    assert main(["reproduce", "proxy-anchor", "cub", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["figures"][0]["published"] == 0.684
    assert "bn-inception" in made["not_run"]["BN-Inception"]
    assert made["not_run"]["ResNet-50"] == "the data is missing"
    assert made["hours"] == {"ResNet-50": round(60 * (5864 // 120) * 120 * 0.01 / 3600, 2)}
    assert main(["reproduce", "proxy-anchor", "cub"]) == 0
    assert "next:  cml reproduce proxy-anchor cub --data DATA" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_whole_is_not_begun_without_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr("cml.processes.device.pick_device", lambda name: torch.device("cpu"))
    monkeypatch.setattr(reproduce, "_seconds_an_image", lambda config, device: 0.01)
    monkeypatch.setattr(reproduce, "run_comparison", lambda *_, **__: pytest.fail("it began"))
    LsunLayout(write_lsun(tmp_path / "raw")).prepare(tmp_path / "data")
    experiment = PAPERS["beyond-binary"]["lsun"]
    made = reproduce.reproduce(experiment, experiment.config, tmp_path / "data", tmp_path / "out")
    methods = {row.name for row in experiment.rows}
    assert made.not_run.keys() == made.hours.keys() == methods
    assert all("no graphics card" in reason for reason in made.not_run.values())
    assert made.piece == ["8 training images, not 4,000", "12 test images, not 394"]


def test_a_network_that_cml_lacks_may_come_with_a_plugin() -> None:
    assert "a plugin may register it" in reproduce._missing_backbone("bn-inception")
    assert reproduce._missing_backbone("resnet50") == ""


def test_the_difference_is_told_of_the_whole_alone() -> None:
    experiment = PAPERS["proxy-anchor"]["cub"]
    found = {"BN-Inception": {"recall@1": (0.704, 0.684, 0.724)}}
    for whole, apart in ((True, "+0.020"), (False, "")):
        first = reproduce._figures(experiment.rows[0], experiment, found, whole=whole)[0]
        grid = reproduce.Reproduction([first], {}, [], {}, []).grid()
        assert grid[1] == ["BN-Inception", "recall@1", "0.684", "0.704 ± 0.020", apart]
