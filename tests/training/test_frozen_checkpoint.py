"""The checkpoint of a head on a frozen backbone: it holds the head alone, and no other backbone is resumed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.errors import DataError
from cml.training.checkpoint import CHECKPOINT, Checkpoint

IMAGES = np.random.default_rng(0).integers(0, 255, (40, 16, 16, 3), np.uint8)
SHORT: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "freeze_backbone": True,
    "sampler": "random(batch_size=20)",
    "steps": 6,
    "checkpoint_every": 2,
    "workers": 0,
    "quiet": True,
}


@pytest.mark.parametrize("projector", [(), (8, 4)])
def test_the_checkpoint_holds_the_head_alone_and_resumes_bit_for_bit(
    projector: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SHORT, "projector": projector}
    whole = cml.fit(IMAGES, range(40), out=tmp_path / "whole", **options)
    save = Checkpoint.save

    def save_and_stop(self: Checkpoint, run: Path | None, step: int) -> None:
        save(self, run, step)
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(IMAGES, range(40), out=tmp_path / "cut", **options)
    state = torch.load(tmp_path / "cut" / CHECKPOINT, weights_only=True)
    assert any("head" in name for name in state["network"])
    assert not any("backbone" in name for name in state["network"])
    resumed = cml.fit(IMAGES, range(40), out=tmp_path / "cut", resume=True, **options)
    for (name, one), other in zip(
        whole.network.state_dict().items(), resumed.network.state_dict().values(), strict=True
    ):
        assert torch.equal(one, other), name


def test_a_head_is_not_resumed_on_another_backbone(tmp_path: Path) -> None:
    cml.fit(IMAGES, range(40), out=tmp_path / "run", **SHORT)
    (tmp_path / "run" / "model.safetensors").unlink()  # as if it was interrupted before the end
    state = torch.load(tmp_path / "run" / CHECKPOINT, weights_only=True)
    state["frozen"] = "0" * 64
    torch.save(state, tmp_path / "run" / CHECKPOINT)
    with pytest.raises(DataError, match=r"does not fit the run .*the frozen backbone has other weights"):
        cml.fit(IMAGES, range(40), out=tmp_path / "run", resume=True, **SHORT)
