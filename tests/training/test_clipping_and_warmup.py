"""Gradient clipping and warm-up, each step beside a slow formula, also of a run that was interrupted and resumed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.training.config import TrainConfig
from cml.training.optimizer import learning_rate_factor

LEVELS = np.repeat(np.linspace(0, 255, 8), 4)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
CONFIG = TrainConfig(
    backbone="small-cnn(norm=group)",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    sampler="random(batch_size=16)",
    steps=8,
    workers=0,
    label_distance="classes",
    loss="proxy-anchor",
    learning_rate=0.01,
    weight_decay=0.0,
)


class Recorder(torch.optim.SGD):
    """Gradient descent that keeps the gradients and learning rates of every step."""

    steps: list[tuple[list[torch.Tensor], list[float]]]

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]  # noqa: ANN401
        rows = [one for group in self.param_groups for one in group["params"]]
        gradients = [one.grad.clone() for one in rows if one.grad is not None]
        type(self).steps.append((gradients, [group["lr"] for group in self.param_groups]))
        return super().step(closure)


def record(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[tuple[list[torch.Tensor], list[float]]]:  # noqa: ANN401
    Recorder.steps = []
    monkeypatch.setattr(torch.optim, "SGD", Recorder)
    classes = [f"{level:.0f}" for level in LEVELS]
    cml.fit(IMAGES, classes, replace(CONFIG, optimizer="sgd", **options), quiet=True)
    return Recorder.steps


def test_every_number_of_the_first_gradient_is_clipped_proxies_included(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1e-3
    free, clipped = record(monkeypatch)[0][0], record(monkeypatch, clip_gradient_value=most)[0][0]
    assert sum((one.abs() > most).sum().item() for one in free) > 100
    assert any((one.abs() > most).any() for one in free if one.shape == (8, 8)), "the proxies' is clipped too"
    for one, other in zip(free, clipped, strict=True):
        slow = [min(max(number, -most), most) for number in one.flatten().tolist()]
        torch.testing.assert_close(other.flatten(), torch.tensor(slow))


def test_the_norm_of_the_networks_first_gradient_is_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0.01
    free, clipped = record(monkeypatch)[0][0], record(monkeypatch, clip_gradient=most)[0][0]
    networks = [(one, other) for one, other in zip(free, clipped, strict=True) if one.shape != (8, 8)]
    norm = math.sqrt(sum(number**2 for one, _ in networks for number in one.flatten().tolist()))
    assert norm > most
    for one, other in networks:
        torch.testing.assert_close(other, one * (most / (norm + 1e-6)))
    assert math.sqrt(sum(other.square().sum().item() for _, other in networks)) == pytest.approx(most, rel=1e-3)


def test_values_are_clipped_before_the_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    value, norm = 1e-3, 0.005
    free = record(monkeypatch)[0][0]
    both = record(monkeypatch, clip_gradient_value=value, clip_gradient=norm)[0][0]
    clamped = [one.clamp(-value, value) for one in free]
    length = math.sqrt(sum(one.square().sum().item() for one in clamped if one.shape != (8, 8)))
    for one, other in zip(clamped, both, strict=True):
        torch.testing.assert_close(other, one if one.shape == (8, 8) else one * (norm / (length + 1e-6)))


@pytest.mark.parametrize("schedule", ["constant", "cosine", "inverse(decay=0.1)", "step(every=3, decay=0.5)"])
@pytest.mark.parametrize("warmup", [0, 3, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (1, 8))])
def test_the_rate_of_each_step_is_that_of_a_slow_formula(
    schedule: str, warmup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = record(monkeypatch, schedule=schedule, warmup=warmup, backbone_lr_scale=0.5)
    assert len(steps) == CONFIG.steps
    for step, (_, rates) in enumerate(steps):
        factor = (step + 1) / warmup if step + 1 < warmup else 1.0
        factor *= {
            "constant": 1.0,
            "cosine": (1 + math.cos(math.pi * step / 8)) / 2,
            "inverse": 1 / (1 + 0.1 * step),
            "step": 0.5 ** math.floor(step / 3),
        }[schedule.partition("(")[0]]
        assert rates == pytest.approx([0.01 * factor, 0.01 * 100 * factor, 0.01 * 0.5 * factor])
        config = replace(CONFIG, schedule=schedule, warmup=warmup)
        assert learning_rate_factor(config, step) == pytest.approx(factor)


@pytest.mark.slow
@pytest.mark.parametrize("stop", [2, 5])  # within the warm-up and after it
def test_a_resumed_run_goes_on_at_the_rate_and_clips_as_before(stop: int, tmp_path: Path) -> None:
    config = replace(
        CONFIG, warmup=4, clip_gradient_value=1e-2, clip_gradient=0.5, crop=0.8, random_crop="area", checkpoint_every=1
    )
    classes = [f"{level:.0f}" for level in LEVELS]

    def fit(out: Path, last: int = 0) -> cml.Model:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == last:
                raise InterruptedError

        callbacks = [cml.Callback(on_step=interrupt)]
        return cml.fit(IMAGES, classes, config, out=out, resume=True, quiet=True, callbacks=callbacks)

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", stop)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    assert all(
        torch.equal(one, other)
        for one, other in zip(resumed.network.parameters(), whole.network.parameters(), strict=True)
    )
