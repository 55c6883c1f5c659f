"""Patterns of parameter names choose what is trained; all else stays bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.option_types import check_options
from cml.training.config import with_options

LEVELS = np.linspace(0, 255, 24)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
OPTIONS: dict[str, Any] = {
    "backbone": "small-cnn(norm=group)",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "sampler": "random(batch_size=10)",
    "quiet": True,
}


def changed_parameters(**options: Any) -> set[str]:  # noqa: ANN401
    """The names of the parameters that two runs of different length have trained differently."""
    short, long = (cml.fit(IMAGES, LEVELS, steps=steps, **OPTIONS, **options) for steps in (1, 3))
    others = dict(short.network.named_parameters())
    return {name for name, value in long.network.named_parameters() if not torch.equal(value, others[name])}


def names() -> set[str]:
    return {name for name, _ in cml.fit(IMAGES, LEVELS, steps=1, **OPTIONS).network.named_parameters()}


def test_only_the_named_parameters_are_trained() -> None:
    assert changed_parameters(train_only="head.*") == {"head.weight", "head.bias"}
    last = sorted(name for name in names() if name.startswith("backbone."))[-1]
    assert changed_parameters(train_only=(last, "head.weight")) == {last, "head.weight"}
    assert changed_parameters(train_only=("head.*",), micro_batch=4, ema_decay=0.9) == {"head.weight", "head.bias"}
    assert changed_parameters(train_only="backbone.*", optimizer="sgd") <= names() - {"head.weight", "head.bias"}


def test_one_pattern_is_a_text() -> None:
    for pattern, patterns in [("head.*", ("head.*",)), ("", ())]:
        assert with_options(cml.TrainConfig(), {"train_only": pattern}).train_only == patterns
        assert with_options(cml.TrainConfig(train_only=pattern), {}).train_only == patterns  # type: ignore[arg-type]


def test_a_pattern_without_a_match_is_named() -> None:
    with pytest.raises(UserError, match=r"'train_only' has the pattern 'head\.wieght', .* Did you mean 'head\.weight'"):
        cml.fit(IMAGES, LEVELS, steps=1, train_only="head.wieght", **OPTIONS)


@pytest.mark.parametrize("other", [{"freeze_backbone": True}, {"lora": 4}, {"tune": True}])
def test_what_else_says_what_is_trained_excludes_patterns(other: dict[str, Any]) -> None:
    name = next(iter(other))
    with pytest.raises(UserError, match=f"Both 'train_only' and '{name}' say what is trained"):
        check_options(cml.TrainConfig(train_only=("head.*",), **other))


def test_a_run_with_patterns_resumes(tmp_path: Path) -> None:
    def fit(out: Path, *, stop: int = 0) -> EmbeddingModel:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        watch = [cml.Callback(on_step=interrupt)]
        options = OPTIONS | {"steps": 6, "checkpoint_every": 2, "train_only": ("head.weight",)}
        return cml.fit(IMAGES, LEVELS, out=out, resume=True, callbacks=watch, **options)

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", stop=5)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    both = zip(resumed.network.parameters(), whole.network.parameters(), strict=True)
    assert all(torch.equal(one, two) for one, two in both)
