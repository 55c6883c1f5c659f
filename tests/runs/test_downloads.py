"""Opening a run reaches no network, whatever names its config holds, unless the user allows it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import timm
import torch
from export_runs import make_run
from safetensors.torch import save_file

import cml
from cml.cli import main
from cml.doors.model import Model
from cml.errors import UserError
from cml.models.embedding import ModelConfig
from cml.storage.downloads import may_download, names_of_a_run

HOW = r"is not in the cache, and opening a run downloads nothing by itself\. .* --allow-download"


class Reached(BaseException):
    """Something looks up a host; nothing catches it and tries again."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[object]:
    """The hosts that were looked up; none answers. The caches are empty."""
    hosts: list[object] = []

    def look_up(host: object, *more: object, **settings: object) -> Any:  # noqa: ANN401
        hosts.append(host)
        raise Reached

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(torch.hub, "_hub_dir", str(tmp_path / "torch"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return hosts


def changed_run(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    run = make_run(folder)
    config = json.loads((run / "config.json").read_text())
    change(config)
    (run / "config.json").write_text(json.dumps(config))
    return run


@pytest.mark.parametrize(
    "distance",
    [
        "sentences(model='nobody/there')",
        f"sentences(model='nobody/there', model_sha256='{'0' * 64}')",
        "sets(base='sentences(model=\"nobody/there\")')",
        "combined(parts={'a': 'sentences(model=\"nobody/there\")', 'b': 'euclidean'})",
    ],
)
def test_a_sentence_model_of_a_run_is_taken_from_the_cache_alone(
    tmp_path: Path, asked: list[object], distance: str
) -> None:
    pytest.importorskip("sentence_transformers")
    run = changed_run(tmp_path / "run", lambda config: config.update(label_distance=distance))

    def encode(model: Model) -> None:
        label = ["a dog"]
        base = model.label_distance
        base.encode([{"a": label, "b": 1.0} if base.name == "combined" else label])

    with pytest.raises(UserError, match=f"sentence model 'nobody/there' {HOW}"):
        encode(cml.load(run, device="cpu"))
    assert asked == []
    with pytest.raises(Reached):
        encode(cml.load(run, device="cpu", allow_download=True))


def test_sentence_models_of_folders_and_of_the_package_need_no_network(asked: list[object]) -> None:
    pytest.importorskip("sentence_transformers")
    assert len(cml.distances.get("sentences").encode(["a dog"])) == 1
    assert asked == []


@pytest.mark.parametrize("backbone", ["timm/test_resnet", "resnet18"])
def test_published_weights_for_comparison_come_from_the_cache_alone(
    tmp_path: Path, asked: list[object], backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cml.load(make_run(tmp_path / "run"), device="cpu")
    run.network.config = ModelConfig(backbone, "none", 8, True, (32, 32))
    with pytest.raises(UserError, match=f"published weights of the backbone '{backbone}.*{HOW}"):
        run.load_published()
    assert asked == []
    if backbone == "resnet18":
        return
    network = timm.create_model("test_resnet")
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *_, **__: str(tmp_path / "model.safetensors"))
    cached = run.load_published().backbone.state_dict()
    assert asked == []
    for name, value in cached.items():
        np.testing.assert_array_equal(value, network.state_dict()[name])


def test_evaluating_goes_on_without_the_row(
    tmp_path: Path, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    from cml.doors.trained_run import TrainedRun

    run = make_run(tmp_path / "run")
    opened = TrainedRun.open(run, device="cpu")
    opened.model.network.config = ModelConfig("resnet18", "none", 8, True, (32, 32))
    assert opened.frozen == {}
    assert "no row of frozen ImageNet features" in capsys.readouterr().err
    assert asked == []


def test_resuming_a_run_downloads_nothing_that_its_config_names(
    tmp_path: Path, asked: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    from export_runs import draw_images

    draw_images(tmp_path / "photos", 24, name="{:02}.png", size=20)
    lines = "".join(f"{item:02}.png,{item}\n" for item in range(24))
    (tmp_path / "labels.csv").write_text(f"file_name,value\n{lines}")
    data = tmp_path / "data"
    prepare = f"prepare folder --images {tmp_path}/photos --labels {tmp_path}/labels.csv --out {data}"
    assert main(prepare.split()) == 0
    run = tmp_path / "run"
    train = f"train value --data {data} --out {run} --backbone small-cnn --weights none --dimension 8 --workers 0"
    options = "--image-size 16 16 --steps 2 --device cpu --sampler random(batch_size=8)"
    assert main(f"{train} {options}".split()) == 0
    (run / "model.safetensors").unlink()
    (run / "checkpoints" / "last.pt").unlink()
    config = json.loads((run / "config.json").read_text())
    for part, names in (("train", ("backbone", "weights")), ("model", ("backbone", "weights"))):
        config[part] |= dict(zip(names, ("resnet18", "imagenet"), strict=True))
    (run / "config.json").write_text(json.dumps(config))
    capsys.readouterr()
    assert main(["train", "value", "--out", str(run), "--resume"]) == 2
    assert "--allow-download" in capsys.readouterr().err
    assert asked == []
    with pytest.raises(Reached):
        main(["train", "value", "--out", str(run), "--resume", "--allow-download"])


def test_a_permission_is_not_widened_within() -> None:
    assert may_download()
    with names_of_a_run(allow_download=False), names_of_a_run(allow_download=True):
        assert not may_download()
    assert may_download()
