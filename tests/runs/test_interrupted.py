"""An interrupted run leaves the model so far in hand, and its folder can be resumed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.errors import UserError

LEVELS = np.linspace(0, 255, 40)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
TINY: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (16, 16),
    "dimension": 8,
    "workers": 0,
    "sampler": "random(batch_size=10)",
    "quiet": True,
}
ENDLESS = 10**6


def fit(steps: int, **options: Any) -> cml.Model:  # noqa: ANN401
    return cml.fit(IMAGES, LEVELS, **{**TINY, "steps": steps, **options})


class At(cml.Callback):
    """Does something after a step, such as pressing Ctrl-C."""

    def __init__(self, step: int, action: Any = lambda: signal.raise_signal(signal.SIGINT)) -> None:  # noqa: ANN401
        self._step = step
        self._action = action

    def on_step(self, state: Any, /) -> None:  # noqa: ANN401
        if state.step == self._step:
            self._action()


def raise_interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("has_folder", [False, True])
def test_ctrl_c_gives_the_model_of_the_last_step(has_folder: bool, tmp_path: Path) -> None:
    out = {"out": tmp_path / "run"} if has_folder else {}
    handler = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))  # as a terminal and a notebook send it
    with pytest.raises(cml.Interrupted) as caught:
        fit(ENDLESS, schedule="constant", callbacks=[At(3, timer.start)], **out)
    assert isinstance(caught.value, KeyboardInterrupt)
    model = caught.value.model
    assert cml.last() is model
    assert not model.network.training
    steps = len(model.history)
    assert steps == model.history.steps[-1] > 0
    assert f"step {steps} of {ENDLESS}" in str(caught.value)
    assert signal.getsignal(signal.SIGINT) is handler
    assert np.array_equal(model.embed(IMAGES), fit(steps, schedule="constant").embed(IMAGES))
    with pytest.raises(UserError, match="No interrupted run"):  # another one has finished
        cml.last()


def test_an_interrupt_amid_a_step_gives_the_model_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(cml.Interrupted, match="interrupted in a step") as caught:
        fit(20, callbacks=[At(13, raise_interrupt)])
    assert caught.value.model.embed(IMAGES).shape == (40, 8)
    assert cml.load(caught.value.model.save(tmp_path / "model")).run_config == caught.value.model.run_config


def test_the_model_has_the_best_weights_and_averages_as_at_the_end() -> None:
    for options in ({"evaluate_every": 5, "ema_decay": 0.9}, {"freeze_backbone": True}):
        with pytest.raises(cml.Interrupted) as caught:
            fit(20, schedule="constant", callbacks=[At(9)], **options)  # asks for a stop after the next step
        whole = fit(10, schedule="constant", **options)
        assert np.array_equal(caught.value.model.embed(IMAGES), whole.embed(IMAGES))
        assert caught.value.model.history.to_dict() == whole.history.to_dict()


def test_an_interrupt_before_the_first_step_is_a_plain_one() -> None:
    class AtOnce(cml.Callback):
        def on_begin(self, *_: object) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        fit(5, callbacks=[AtOnce()])
    assert not isinstance(caught.value, cml.Interrupted)


def test_the_same_call_names_resume_and_then_continues(tmp_path: Path) -> None:
    run = {"out": tmp_path / "run"}
    with pytest.raises(cml.Interrupted, match=r"checkpoint of step 7 of 12 is written.*resume=True"):
        fit(12, callbacks=[At(6)], **run)
    with pytest.raises(UserError, match=r"already holds a run\. Continue it with resume=True"):
        fit(12, **run)
    with pytest.raises(UserError, match=r"not finished.*resume=True"):
        cml.load(tmp_path / "run")
    resumed = fit(12, resume=True, **run)
    whole = fit(12)
    assert np.array_equal(resumed.embed(IMAGES), whole.embed(IMAGES))
    assert resumed.history.to_dict() == whole.history.to_dict()
    with pytest.raises(UserError, match="'resume' continues the run in the folder 'out'"):
        fit(12, resume=True)


def test_handlers_of_an_application_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))
    try:
        model = fit(5, callbacks=[At(2)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert pressed == [1]
    assert len(model.history) == 5


def test_training_on_a_prepared_dataset_gives_the_model_too(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    from PIL import Image

    lines = ["file_name,age"]
    for number, image in enumerate(IMAGES):
        Image.fromarray(image).save(images / f"{number}.png")
        lines.append(f"{number}.png,{LEVELS[number]}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    data = cml.prepare(
        "folder", tmp_path / "data", images=images, labels=tmp_path / "labels.csv", label_columns=("age",)
    )
    with pytest.raises(cml.Interrupted, match="resume=True") as caught:
        cml.train("value", data, tmp_path / "run", **{**TINY, "steps": 30}, callbacks=[At(3)])
    model = caught.value.model
    assert model is cml.last()
    assert len(model.history) == 4
    assert model.evaluate(IMAGES, LEVELS).rows["oracle"]["spearman_rho"].mean == 1
