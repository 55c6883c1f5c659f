"""Precision and compilation of a forward pass: close values, restored settings, records of what was not the default."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import cml
from cml.errors import UserError
from cml.models.forward_pass import ForwardPass, compile_module
from cml.processes.device import pin_batch
from cml.processes.exactness import use_precision

PICTURES = np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8)
OPTIONS = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32), "steps": 2, "workers": 0, "quiet": True}


@pytest.fixture(scope="module")
def model() -> cml.Model:
    return cml.fit(PICTURES, np.arange(12.0), sampler="random(batch_size=6)", **OPTIONS)


def test_precisions_are_close_and_end_with_the_call(model: cml.Model) -> None:
    plain = model.embed(PICTURES)
    half = model.embed(PICTURES, precision="bfloat16")
    assert half.dtype == np.float32
    assert 0 < np.abs(half - plain).max() < 0.05
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        by_hand = model.network(torch.from_numpy(PICTURES).permute(0, 3, 1, 2).float())
    assert np.abs(by_hand.float().numpy() - half).max() < 1e-6
    assert np.array_equal(model.embed(PICTURES), plain)
    assert np.array_equal(model.embed(PICTURES, precision="tf32"), plain)  # of GPUs alone
    assert model.network.forward_pass == ForwardPass()


def test_tf32_is_set_within_the_block_only() -> None:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with use_precision("tf32", torch.device("cpu")):
        assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == (True, True)
    with pytest.raises(ZeroDivisionError), use_precision("tf32", torch.device("cpu")):
        raise ZeroDivisionError
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_a_run_trains_in_tf32_as_on_a_cpu_without_it(model: cml.Model) -> None:
    other = cml.fit(PICTURES, np.arange(12.0), sampler="random(batch_size=6)", precision="tf32", **OPTIONS)
    assert np.array_equal(other.embed(PICTURES), model.embed(PICTURES))


@pytest.mark.slow
def test_compiled_passes_give_the_same(model: cml.Model) -> None:
    plain = model.embed(PICTURES)
    assert np.abs(model.embed(PICTURES, compile=True) - plain).max() < 1e-5
    assert model.network.backbone._compiled_call_impl is None
    names = list(model.network.state_dict())
    trained = cml.fit(PICTURES, np.arange(12.0), sampler="random(batch_size=6)", compile=True, **OPTIONS)
    assert list(trained.network.state_dict()) == names
    assert trained.network.backbone._compiled_call_impl is None
    assert np.abs(trained.embed(PICTURES) - plain).max() < 0.01  # AdamW enlarges rounding


def test_compilation_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler"):
        compile_module(nn.Linear(2, 2))


def test_stores_and_folders_say_the_precision(model: cml.Model, tmp_path: Path) -> None:
    shape = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32), "quiet": True}
    store = cml.features(PICTURES, out=tmp_path / "half", precision="bfloat16", **shape)
    assert store.manifest["made_by"]["precision"] == "bfloat16"
    with pytest.raises(UserError, match="precision bfloat16"):
        cml.features(PICTURES, out=tmp_path / "half", **shape)


def test_only_arrays_for_cuda_are_pinned() -> None:
    rows = np.zeros(3)
    assert pin_batch(rows, torch.device("cpu")) is rows
    assert pin_batch([rows], torch.device("cuda")) == [rows]
