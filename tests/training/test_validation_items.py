"""Items of the user's own to validate on choose the weights, and no training item is held out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cml
from cml.errors import UserError

LEVELS = np.linspace(0, 255, 40)
IMAGES = np.tile(LEVELS[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
SMALL: dict[str, Any] = {"backbone": "small-cnn(norm=group)", "weights": "none", "image_size": (16, 16)}
OPTIONS: dict[str, Any] = {"dimension": 8, "workers": 0, "sampler": "random(batch_size=10)", "quiet": True}
ROWS = np.random.default_rng(0).normal(size=(90, 5)).astype(np.float32)


def test_they_choose_the_weights() -> None:
    rng = np.random.default_rng(1)
    options: dict[str, Any] = {**OPTIONS, "steps": 40, "evaluate_every": 4, "learning_rate": 0.3}
    lines: list[float] = []
    watch = cml.Callback(on_validate=lambda state: lines.append(state.validation or np.inf))
    validation = ROWS[60:], ROWS[60:, 0]
    model = cml.fit(ROWS[:60], rng.permutation(ROWS[:60, 0]), validation=validation, callbacks=[watch], **options)
    assert len(lines) == 10
    distances = np.linalg.norm((e := model.embed(ROWS[60:]))[:, None] - e, axis=2)
    wanted = np.abs(ROWS[60:, None, 0] - ROWS[None, 60:, 0])
    rhos = []
    for row in range(30):
        others = np.arange(30) != row
        ranks = [np.argsort(np.argsort(values[row][others])) for values in (distances, wanted)]
        rhos.append(np.corrcoef(*ranks)[0, 1])
    assert 1 - np.mean(rhos) == pytest.approx(min(lines), abs=2e-3)


def test_no_training_item_is_held_out_and_a_tenth_of_the_steps_lies_between_validations() -> None:
    seen: list[int] = []
    watch = cml.Callback(on_validate=lambda state: seen.append(state.step))
    model = cml.fit(
        ROWS[:60], ROWS[:60, 0], validation=(ROWS[60:], ROWS[60:, 0]), epochs=5, callbacks=[watch], **OPTIONS
    )
    assert model.run_config.train.steps == 5 * 6
    assert seen == [*range(3, 31, 3)]


@pytest.mark.parametrize("options", [{}, {"freeze_backbone": True}], ids=str)
def test_images_and_data_sets_of_ones_own_validate_too(options: dict[str, Any], tmp_path: Path) -> None:
    pairs = [(image, level) for image, level in zip(IMAGES, LEVELS, strict=True)]
    forms: list[Any] = [(IMAGES[20:], LEVELS[20:]), ([*IMAGES[20:]], [*LEVELS[20:]]), pairs[20:]]
    models = [
        cml.fit(IMAGES[:20], LEVELS[:20], validation=form, steps=4, evaluate_every=2, **SMALL, **OPTIONS, **options)
        for form in forms
    ]
    for model in models[1:]:
        assert all(
            torch.equal(a, b) for a, b in zip(model.network.parameters(), models[0].network.parameters(), strict=True)
        )


def test_a_costly_distance_of_ones_own_knows_them() -> None:
    matrix = np.abs(LEVELS[:, None] - LEVELS)
    options: dict[str, Any] = {**SMALL, **OPTIONS, "steps": 2, "validation": (IMAGES[20:], [*range(20, 40)])}
    cml.fit(IMAGES[:20], [*range(20)], label_distance=matrix, **options)
    cml.fit(IMAGES[:20], LEVELS[:20], label_distance=lambda a, b: abs(a - b), **{**options, "validation": forms()})


def forms() -> tuple[Any, Any]:
    return IMAGES[20:], LEVELS[20:]


def test_many_are_drawn_from() -> None:
    many = np.random.default_rng(2).normal(size=(1500, 5)).astype(np.float32)
    cml.fit(ROWS, ROWS[:, 0], validation=(many, many[:, 0]), steps=2, **OPTIONS)


def test_a_run_resumes_with_the_same_ones_alone(tmp_path: Path) -> None:
    def fit(out: Path, last: float = 0.0, stop: int = 0) -> cml.Model:
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        labels = [*ROWS[60:89, 0], last]
        watch = [cml.Callback(on_step=interrupt)]
        options: dict[str, Any] = {"steps": 8, "checkpoint_every": 2, "callbacks": watch, **OPTIONS}
        return cml.fit(ROWS[:60], ROWS[:60, 0], validation=(ROWS[60:], labels), out=out, resume=True, **options)

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", stop=5)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    assert (resumed.embed(ROWS) == whole.embed(ROWS)).all()
    with pytest.raises(UserError, match="was trained on another dataset"):
        fit(tmp_path / "again", last=1.0)


@pytest.mark.parametrize(
    ("validation", "options", "said"),
    [
        ((ROWS, ROWS[:, 0]), {}, "'validation' must be of the kind of the training inputs, images. Got .* instead"),
        ((IMAGES[:7], LEVELS[:7]), {}, "'validation' must have at least 8 items to rank. Got 7 instead"),
        ((IMAGES, LEVELS[:7]), {}, "'validation' cannot be used: There must be one label per image"),
        ((IMAGES, LEVELS), {"groups": [*range(40)]}, "'groups' are for items that are held out"),
        (17, {}, "'validation' cannot be used: "),
    ],
)
def test_what_cannot_work_is_named_in_one_line(validation: Any, options: dict[str, Any], said: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=said) as caught:
        cml.fit(IMAGES, LEVELS, validation=validation, steps=2, **SMALL, **OPTIONS, **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"training inputs, vectors \(5\)|5 numbers"):
        cml.fit(ROWS, ROWS[:, 0], validation=(ROWS[:, :4], ROWS[:, 0]), steps=2, **OPTIONS)
