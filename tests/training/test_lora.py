"""Low-rank adapters: what they train, that a run goes on, and that the model is one like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.option_types import check_options
from cml.training.saved_model import RunConfig
from cml.training.stages import LoraAdapters

pytest.importorskip("peft")
pytest.importorskip("timm")

LEVELS = np.linspace(0, 255, 24).round()
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 32, 32, 3)).astype(np.uint8)
TINY: dict[str, Any] = {
    "backbone": "timm/test_vit",
    "weights": "none",
    "image_size": (32, 32),
    "dimension": 4,
    "workers": 0,
    "quiet": True,
    "sampler": "random(batch_size=8)",
    "device": "cpu",
    "lora": 2,
    "learning_rate": 0.01,
}


def tiny(backbone: str = "timm/test_vit") -> EmbeddingModel:
    torch.manual_seed(0)
    return EmbeddingModel(ModelConfig(backbone, "none", 4, True, (32, 32)))


def test_adapters_alone_learn_beside_the_head_and_merging_changes_nothing() -> None:
    model, images = tiny(), torch.rand(3, 3, 32, 32) * 255
    before = {name: one.clone() for name, one in model.state_dict().items()}
    as_it_was = model.eval()(images)
    adapters = LoraAdapters(model, 2)
    torch.testing.assert_close(model.eval()(images), as_it_was)  # they begin with nothing to add
    learning = [name for name, one in model.named_parameters() if one.requires_grad]
    assert all("lora_" in name or name.startswith("head.") for name in learning)
    assert sum(one.numel() for one in model.parameters() if one.requires_grad) < 0.2 * sum(
        one.numel() for one in before.values()
    )
    with torch.no_grad():
        for name, one in model.named_parameters():
            if "lora_" in name:
                one.normal_(std=0.1)
    adapted = model(images)
    assert not torch.allclose(adapted, as_it_was, atol=1e-3)
    adapters.merge()
    torch.testing.assert_close(model(images), adapted, rtol=1e-4, atol=1e-5)
    assert model.state_dict().keys() == before.keys()


def test_a_run_with_adapters_goes_on_and_its_model_is_one_like_any_other(tmp_path: Path) -> None:
    def fit(out: Path, resume: bool = False, stop: int = 0) -> cml.Model:
        def stopped(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise SystemExit

        watch = cml.Callback(on_step=stopped)
        return cml.fit(
            IMAGES, LEVELS, steps=6, checkpoint_every=2, evaluate_every=3, validation_fraction=0.4, ema_decay=0.9,
            out=out, resume=resume, callbacks=[watch], **TINY,
        )  # fmt: skip

    whole = fit(tmp_path / "whole")
    with pytest.raises(SystemExit):
        fit(tmp_path / "cut", stop=5)
    again = fit(tmp_path / "cut", resume=True)
    for name, one in whole.network.state_dict().items():
        assert torch.equal(one, again.network.state_dict()[name]), name
    loaded = cml.load(tmp_path / "cut")
    np.testing.assert_array_equal(loaded.embed(IMAGES), again.embed(IMAGES))
    assert RunConfig.load(tmp_path / "cut").train.lora == 2
    assert {name for name in loaded.network.state_dict() if "lora" in name} == set()
    untrained = dict(tiny().backbone.named_parameters())
    moved = [name for name, one in loaded.network.backbone.named_parameters() if not torch.equal(one, untrained[name])]
    assert moved
    assert all(name.endswith(("qkv.weight", "proj.weight", "fc1.weight", "fc2.weight")) for name in moved)


def test_what_has_nothing_to_adapt_is_refused() -> None:
    with pytest.raises(UserError, match=r"Little of the backbone 'small-cnn' is linear layers"):
        LoraAdapters(tiny("small-cnn"), 2)
    with pytest.raises(UserError, match="frozen or has adapters"):
        check_options(cml.TrainConfig(lora=2, freeze_backbone=True))
