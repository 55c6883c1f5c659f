"""Weights of items: how often each is an anchor, against a slow count and against items that are repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml import sampling
from cml.errors import UserError
from cml.sampling.draws import weighted_anchors
from cml.sampling.sampler import Sampler

ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
OPTIONS: dict[str, Any] = {"dimension": 8, "workers": 0, "sampler": "random(batch_size=10)", "quiet": True}
WEIGHTS = np.random.default_rng(1).uniform(0.2, 2, 60)


def epoch(weights: np.ndarray, steps: int, number: int) -> list[np.ndarray]:
    return [weighted_anchors(weights, seed=3, epoch=number, index=index, steps=steps) for index in range(steps)]


def slow_epoch(weights: np.ndarray, number: int) -> list[int]:
    """Madow's scheme, point by point: which item's part of a line each of N equidistant points lies in."""
    rng = np.random.default_rng((3, number, 0))
    order, shift = rng.permutation(len(weights)), rng.random()
    drawn = []
    for point in range(len(weights)):
        place = (point + shift) * sum(weights) / len(weights)
        for item in order:
            if place < weights[item]:
                drawn.append(int(item))
                break
            place -= weights[item]
    return drawn


def test_an_epoch_is_that_of_the_slow_scheme() -> None:
    for number in range(5):
        drawn = np.concatenate(epoch(WEIGHTS, 6, number))
        assert sorted(drawn.tolist()) == sorted(slow_epoch(WEIGHTS, number))


def test_an_item_comes_as_often_as_its_weight_says_and_never_twice_in_a_batch() -> None:
    wanted = 60 * WEIGHTS / WEIGHTS.sum()
    counts = np.zeros((400, 60))
    for number in range(400):
        batches = epoch(WEIGHTS, 6, number)
        assert all(len(np.unique(batch)) == len(batch) == 10 for batch in batches)
        counts[number] = np.bincount(np.concatenate(batches), minlength=60)
    assert ((counts == np.floor(wanted)) | (counts == np.ceil(wanted))).all()
    np.testing.assert_allclose(counts.mean(axis=0), wanted, atol=0.1)


def test_whole_weights_are_repeated_items() -> None:
    weights = np.array([1.0, 2.0, 3.0, 1.0, 1.0, 4.0])  # of 12 together: twice the items
    counts = sum(np.bincount(np.concatenate(epoch(weights, 6, number)), minlength=6) for number in range(600))
    np.testing.assert_allclose(np.asarray(counts) / 300, weights, atol=0.1)


@pytest.mark.parametrize("name", ["random(batch_size=10)", "dense(batch_size=10)", "grouped(batch_size=12, groups=3)"])
def test_counted_anchors_of_every_sampler_follow_the_weights(name: str) -> None:
    sampler: Sampler = sampling.get(name)
    state = np.argsort(np.abs(ROWS[:, None, 0] - ROWS[:, 0]), axis=1)[:, 1 : 1 + max(1, sampler.neighbors)]
    steps = sampler.steps_per_epoch(60)
    for step in range(steps):
        batch = sampler.batch(state.astype(np.int32), seed=3, step=step, weights=WEIGHTS)
        anchors = weighted_anchors(WEIGHTS, seed=3, epoch=0, index=step, steps=steps)
        assert batch.items[: len(anchors)].tolist() == anchors.tolist()
        assert len(np.unique(batch.items)) == sampler.batch_size


def test_items_of_weight_0_are_left_out() -> None:
    weights = (np.arange(60) % 3 > 0).astype(float)
    kept = weights > 0
    options = {**OPTIONS, "steps": 6, "augment": _collect}
    _seen.clear()
    weighted = cml.fit(ROWS, ROWS[:, 0], sample_weight=weights, **options)
    assert {tuple(row) for row in _seen} == {tuple(row) for row in ROWS[kept].tolist()}
    alone = cml.fit(ROWS[kept], ROWS[kept, 0], sample_weight=np.ones(40), **options)
    np.testing.assert_array_equal(weighted.embed(ROWS), alone.embed(ROWS))


_seen: list[list[float]] = []


def _collect(row: Any) -> Any:  # noqa: ANN401
    _seen.append(row.tolist())
    return row


def test_scale_does_not_matter_and_weights_do() -> None:
    one, ten, other = (
        cml.fit(ROWS, ROWS[:, 0], steps=5, sample_weight=weights, **OPTIONS).embed(ROWS)
        for weights in (WEIGHTS, 8 * WEIGHTS, WEIGHTS[::-1])
    )
    np.testing.assert_array_equal(one, ten)
    assert (one != other).any()


def test_a_run_resumes_with_the_same_weights_alone(tmp_path: Path) -> None:
    def fit(out: Path, weights: Any = WEIGHTS, stop: int = 0) -> cml.Model:  # noqa: ANN401
        def interrupt(state: Any) -> None:  # noqa: ANN401
            if state.step == stop:
                raise InterruptedError

        options: dict[str, Any] = {"steps": 9, "checkpoint_every": 2, "evaluate_every": 3, **OPTIONS}
        watch = [cml.Callback(on_step=interrupt)]
        return cml.fit(ROWS, ROWS[:, 0], sample_weight=weights, out=out, resume=True, callbacks=watch, **options)

    with pytest.raises(InterruptedError):
        fit(tmp_path / "again", stop=5)
    resumed, whole = fit(tmp_path / "again"), fit(tmp_path / "whole")
    np.testing.assert_array_equal(resumed.embed(ROWS), whole.embed(ROWS))
    with pytest.raises(UserError, match=r"was started with sample_weight=sha256:\w+ of your own, now it is none"):
        fit(tmp_path / "again", None)


@pytest.mark.parametrize(
    ("weights", "options", "said"),
    [
        (-WEIGHTS, {}, r"'sample_weight' must be finite and at least 0. Got -1.\d+ for item 0 instead"),
        (np.r_[WEIGHTS[:17], np.nan, WEIGHTS[18:]], {}, "Got nan for item 17 instead"),
        (np.zeros(60), {}, "'sample_weight' is 0 for all items"),
        (np.ones(59), {}, r"a number for each of the 60 items. Got the shape \(59,\) instead"),
        (["a"] * 60, {}, "'sample_weight' must hold a number for each item"),
        (np.r_[np.ones(59), 30], {}, "'sample_weight' of item 59 is 33.7 % of all, so a batch would need it more than"),
        (np.eye(60)[0], {}, "A batch takes|training items"),
        (WEIGHTS, {"sampler": "per-class(batch_size=8)", "label_distance": "classes"}, "'per-class' takes no"),
    ],
)
def test_wrong_weights_are_named_in_one_line(weights: Any, options: dict[str, Any], said: str) -> None:  # noqa: ANN401
    labels = [f"{value:.0f}" for value in ROWS[:, 0]] if "label_distance" in options else ROWS[:, 0]
    with pytest.raises(UserError, match=said) as caught:
        cml.fit(ROWS, labels, sample_weight=weights, steps=2, **{**OPTIONS, **options})
    assert "\n" not in str(caught.value)


def test_tune_takes_none() -> None:
    with pytest.raises(UserError, match="'tune' chooses heads by all items alike: leave out 'sample_weight'"):
        cml.fit(ROWS, ROWS[:, 0], tune=True, sample_weight=WEIGHTS, quiet=True)


def test_the_estimator_takes_them() -> None:
    options = {name: value for name, value in OPTIONS.items() if name != "quiet"}
    estimator = cml.sklearn.CMLEmbedder(steps=3, **options).fit(ROWS, ROWS[:, 0], sample_weight=WEIGHTS)
    wanted = cml.fit(ROWS.astype(float), ROWS[:, 0], steps=3, sample_weight=WEIGHTS, **OPTIONS).embed(ROWS)
    np.testing.assert_array_equal(estimator.transform(ROWS), wanted)
