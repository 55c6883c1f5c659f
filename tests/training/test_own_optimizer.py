"""Optimisers and schedulers that functions of the user's own make, beside cml's own where they do the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

import cml
from cml.cli import main
from cml.errors import UserError
from cml.option_types import check_options
from cml.training.config import TrainConfig

LEVELS = np.linspace(0, 255, 24)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
OPTIONS: dict[str, Any] = {
    "backbone": "small-cnn(norm=group)",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "steps": 6,
    "sampler": "random(batch_size=10)",
    "quiet": True,
}


def fit(**options: Any) -> cml.Model:  # noqa: ANN401
    return cml.fit(IMAGES, LEVELS, **{**OPTIONS, **options})


def same(one: cml.Model, other: cml.Model) -> bool:
    both = zip(one.network.parameters(), other.network.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in both)


def decay(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.1 * step))


def one_cycle(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    return lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=6)


def in_turn(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    parts = [lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2), lr_scheduler.MultiStepLR(optimizer, [3, 4])]
    return lr_scheduler.SequentialLR(optimizer, parts, [2])


def test_it_trains_as_cmls_own_does() -> None:
    def sgd(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        return torch.optim.SGD(groups, 0.02, momentum=0.9, weight_decay=5e-4)

    common = {"backbone_lr_scale": 0.5, "proxy_rate": 10.0, "loss": "proxy-anchor", "label_distance": "classes"}
    labels = {"labels": [f"{int(level) // 64}" for level in LEVELS]}
    own, plain = (
        cml.fit(IMAGES, **labels, **OPTIONS, **common, **options)
        for options in (
            {"optimizer": sgd, "schedule": decay},
            {"optimizer": "sgd", "learning_rate": 0.02, "schedule": "inverse(decay=0.1)"},
        )
    )
    for one, other in zip(own.network.parameters(), plain.network.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert (own.run_config.train.optimizer, own.run_config.train.schedule) == ("custom", "custom")
    assert own.run_config.own == {"optimizer": "test_it_trains_as_cmls_own_does.<locals>.sgd", "schedule": "decay"}


def test_the_backbone_waits_and_the_callback_sees_the_rate_of_the_step() -> None:
    rates: list[float] = []
    watch = cml.Callback(on_step=lambda state: rates.append(state.learning_rate))
    frozen, waiting = (
        fit(optimizer=torch.optim.RAdam, steps=2, head_first=head_first, callbacks=[watch]) for head_first in (0, 2)
    )
    assert not same(frozen, waiting)
    assert rates[:2] == [1e-3, pytest.approx(1e-3 / 2)]  # cml's cosine over RAdam's own rate
    rates.clear()
    fit(schedule=decay, callbacks=[watch])
    assert rates == pytest.approx([1e-3 / (1 + 0.1 * step) for step in range(6)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [(torch.optim.RAdam, one_cycle), (torch.optim.RAdam, "cosine"), (torch.optim.Adafactor, decay), ("sgd", in_turn)],
)
def test_an_interrupted_run_resumes_bit_for_bit(
    optimizer: Callable[..., Any] | str, schedule: Callable[..., Any] | str, tmp_path: Path
) -> None:
    def run(out: Path, stop: int = 0) -> cml.Model:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        options: dict[str, Any] = {"optimizer": optimizer, "schedule": schedule, "checkpoint_every": 2}
        watch = [cml.Callback(on_step=interrupt)]
        return fit(projector=(4,), micro_batch=6, ema_decay=0.5, out=out, resume=True, callbacks=watch, **options)

    with pytest.raises(InterruptedError):
        run(tmp_path / "again", 5)
    assert same(run(tmp_path / "again"), run(tmp_path / "whole"))


def _without_head(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups[1:])


def _in_one_group(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.Adam([one for group in groups for one in group["params"]])


def _lbfgs(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    return torch.optim.LBFGS([one for group in groups for one in group["params"]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"optimizer": _without_head}, r"Adam leaves out 2 of \d+ parameters, head.weight, head.bias, so they would"),
        ({"optimizer": _without_head, "projector": (4,)}, r"head.bias, projector.layers.0.weight and 1"),
        ({"optimizer": _in_one_group, "backbone_lr_scale": 0.1}, "parameters of different learning rates into one"),
        ({"optimizer": torch.optim.LBFGS}, r"The function 'optimizer' fails \(ValueError: LBFGS"),
        ({"optimizer": _lbfgs}, "LBFGS computes the loss several times in a step"),
        ({"optimizer": list}, "'optimizer' must make one of torch.optim. Got list instead."),
        ({"schedule": lambda optimizer: 3}, "'schedule' must make a scheduler .* Got int instead."),
        ({"schedule": lr_scheduler.ReduceLROnPlateau}, "ReduceLROnPlateau follows a score"),
        ({"schedule": decay, "warmup": 2}, "A schedule of your own sets all learning rates: leave out warmup=2"),
        ({"schedule": decay, "head_first": 2}, "sets all learning rates: leave out head_first=2"),
        ({"optimizer": torch.optim.Adam, "learning_rate": 0.1}, "The function 'optimizer' sets 'learning_rate' itself"),
        ({"optimizer": "custom"}, "optimizer='custom' stands for a function, which only Python can give"),
        ({"schedule": "custom"}, "schedule='custom' stands for a function, which only Python can give"),
        ({"optimizer": torch.optim.Adam, "tune": True, "freeze_backbone": True}, "leave out '"),
    ],
)
def test_what_cannot_work_is_named_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        fit(**options)
    assert "\n" not in str(caught.value)


def test_one_group_is_enough_where_all_rates_are_equal() -> None:
    fit(optimizer=_in_one_group, steps=1)
    fit(optimizer=torch.optim.Adam, train_only=("backbone.*",), steps=1)


def test_a_run_resumes_with_the_same_functions_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "people", "--out", str(tmp_path / "data"), "--count", "40", "--size", "16"]) == 0
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"} | {"flip": "none", "steps": 2}
    run = tmp_path / "run"
    cml.train("pose", tmp_path / "data", run, optimizer=torch.optim.RAdam, quiet=True, **options)
    capsys.readouterr()
    assert main(["train", "pose", "--out", str(run), "--resume"]) == 2
    assert "optimizer='custom' stands for a function, which only Python can give" in capsys.readouterr().err
    with pytest.raises(UserError, match="was started with optimizer=RAdam of your own, now it is NAdam"):
        cml.train("pose", tmp_path / "data", run, optimizer=torch.optim.NAdam, resume=True, quiet=True, **options)


def test_the_estimator_takes_functions() -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"}
    estimator = cml.sklearn.CMLEmbedder(optimizer=torch.optim.RAdam, schedule=decay, **options)
    embedded = estimator.fit(IMAGES, LEVELS).transform(IMAGES)
    wanted = fit(optimizer=torch.optim.RAdam, schedule=decay).embed(IMAGES)
    np.testing.assert_array_equal(embedded, wanted)
    with pytest.raises(UserError, match=r"'optimizer' must be a text, such as 'adamw'\. Got SGD"):
        check_options(TrainConfig(optimizer=torch.optim.SGD))  # type: ignore[arg-type]
