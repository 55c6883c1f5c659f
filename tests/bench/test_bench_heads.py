"""Heads trained at once are the heads that are trained alone, and those of ``cml train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cml import distances, losses
from cml.bench import heads, suite
from cml.bench.heads import train_heads
from cml.bench.suite import CHANGED, METHODS, SUITES, methods_of
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.items import LabelledItems
from cml.losses.log_ratio import LogRatioLoss
from cml.losses.loss import Loss
from cml.runs.search_space import with_settings
from cml.training.config import TrainConfig
from cml.training.frozen_backbone import Features
from cml.training.gradient_descent import GradientDescent
from cml.training.head_losses import stack_heads, stack_key
from cml.training.learner import Place

ITEMS = 40
CONFIG = TrainConfig(
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=6,
    sampler="random(batch_size=24)",
    steps=4,
    freeze_backbone=True,
    learning_rate=3e-3,
    device="cpu",
)


def _labels(ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Label distances (N, N), and the labels."""
    vectors = np.random.default_rng(0).normal(size=(ITEMS, 2)).astype(np.float32)
    if ties:
        vectors = np.round(vectors)
    distance = distances.get("euclidean")
    encoded = distance.encode(vectors.tolist())
    return distance.pairwise(encoded, encoded), vectors


def _features(width: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(ITEMS, width)).astype(np.float32)


def _assert_alike(found: np.ndarray, wanted: np.ndarray, normalize: bool) -> None:
    """Embeddings agree to rounding; the common shift of those that are not normalised is rounding alone."""
    if not normalize:
        found, wanted = found - found.mean(axis=0), wanted - wanted.mean(axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=3e-4)


@pytest.fixture(scope="module")
def width() -> int:
    from cml.models import get

    return get("small-cnn", "none", image_size=(16, 16)).features


def _configs(name: str, count: int = 3) -> list[TrainConfig]:
    """The first trials of a method."""
    method = METHODS[name]
    base = replace(CONFIG, loss=method.loss, dimension=2 if method.vectors else CONFIG.dimension)
    return [with_settings(base, method.settings(number, "A")) for number in range(count)]


@pytest.mark.parametrize("name", METHODS)
def test_heads_trained_at_once_are_those_trained_alone(name: str, width: int) -> None:
    features, labels, configs = _features(width), _labels(), _configs(name)
    together = train_heads(configs, features, *labels)
    for config, head in zip(configs, together, strict=True):
        (alone,) = train_heads([config], features, *labels)
        assert not head.failed
        _assert_alike(head.embed(features), alone.embed(features), head.normalize)


@pytest.mark.parametrize("name", ["log-ratio", "binary-nearest", "rank-n-contrast", "regression", "sum"])
def test_a_head_is_that_of_a_training_run_on_the_same_features(name: str, width: int) -> None:
    features, labels = _features(width), _labels()
    config = _configs(name)[1]
    distance = distances.get("euclidean")
    data = LabelledItems(Features(features), distance.encode(labels[1].tolist()), distance)
    run = GradientDescent(config).learn(data, place=Place(quiet=True)).model.embed_extracted(features)
    (head,) = train_heads([config], features, *labels)
    _assert_alike(head.embed(features), run, head.normalize)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_stacked_losses_have_the_values_and_slopes_of_each(name: str, ties: bool) -> None:
    losses = _fitted(name, ties)
    key = stack_key(losses[0])
    if key is None:
        assert name in ("dense-triplet", "binary-threshold", "binary-nearest", "lambda-ndcg", "regression")
        return
    losses = [loss for loss in losses if stack_key(loss) == key]
    block = torch.from_numpy(_labels(ties)[0][:12, :12])
    torch.manual_seed(0)
    points = torch.randn(len(losses), 12, 4).requires_grad_()
    values = stack_heads(losses)(points, block)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    for h, loss in enumerate(losses):
        own = points[h].detach().clone().requires_grad_()
        value = loss(own, block)
        (wanted,) = torch.autograd.grad(value, own)
        torch.testing.assert_close(values[h], value, rtol=2e-6, atol=1e-7)
        torch.testing.assert_close(slopes[h], wanted, rtol=1e-5, atol=1e-6)


def _fitted(name: str, ties: bool) -> Sequence[Loss]:
    distance = Precomputed(_labels(ties)[0], symmetric=True)
    fitted = [losses.get(config.loss) for config in _configs(name, 8)]
    for loss in fitted:
        if loss.labels == "label distances":
            loss.fit(distance, range(ITEMS))
    return fitted


def test_a_head_whose_loss_cannot_be_made_of_the_labels_fails_alone(width: int) -> None:
    classes = np.random.default_rng(0).integers(0, 3, ITEMS)
    same = (classes[:, None] != classes).astype(np.float32)
    configs = [replace(CONFIG, loss=loss) for loss in ("log-ratio(zero_factor=1.0)", "rkd-distance", "regression")]
    heads = train_heads(configs, _features(width), same)
    assert "all equal" in heads[0].failed
    assert not heads[1].failed
    assert "vectors" in heads[2].failed


def test_heads_that_differ_in_more_than_their_loss_and_rates_are_refused(width: int) -> None:
    with pytest.raises(UserError, match="share all options"):
        train_heads([CONFIG, replace(CONFIG, seed=1)], _features(width), *_labels())


def test_every_trial_follows_from_its_number_and_the_first_is_the_default() -> None:
    assert len(METHODS) >= 14
    for method in METHODS.values():
        assert method.settings(0, "A") == {}
        assert method.settings(3, "A") == method.settings(3, "A") != method.settings(4, "A")
        assert method.settings(1, "A")["learning_rate"] > method.settings(1, "B")["learning_rate"]
    assert SUITES["2026.1"].trials == 20
    assert SUITES["2026.1"].seeds == 5


def test_a_later_suite_has_todays_losses_and_the_published_one_under_the_names_of_the_first() -> None:
    assert methods_of("2026.1") == METHODS
    assert methods_of("2026.2").keys() == METHODS.keys()
    assert methods_of("2026.2-quick") == methods_of("2026.2")
    later = {name: suite.method(name, "2026.2") for name in CHANGED["2026.2"]}
    losses_of = {name: losses.get(how.loss).extra_repr() for name, how in later.items() if how is not None}
    assert losses_of.pop("log-ratio-paper") == LogRatioLoss.paper().extra_repr()
    assert losses_of == {name: losses.get(name).extra_repr() for name in losses_of}
    for name, how in later.items():
        assert how is not None
        assert how.vary == METHODS[name].vary  # the same trials
        assert losses.get(METHODS[name].loss).extra_repr() != losses.get(how.loss).extra_repr()
    assert suite.method("soft-target", "2026.2") == METHODS["soft-target"]


@pytest.mark.parametrize("end", [2, 4])
def test_a_killed_batch_of_heads_goes_on(end: int, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "_SAVE_SECONDS", 0.0)
    arguments = (_configs("cosent"), _features(width), *_labels())
    whole, save, saved = train_heads(*arguments), heads._State.save, []

    def save_and_stop(self: heads._State, step: int, *, last: bool) -> None:
        save(self, step, last=last)
        saved.append(step)
        if saved == list(range(1, end + 1)):
            raise KeyboardInterrupt

    monkeypatch.setattr(heads._State, "save", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train_heads(*arguments, tmp_path / "kept.safetensors")
    again = train_heads(*arguments, tmp_path / "kept.safetensors")
    assert saved == [1, 2, 3, 4]  # no step twice
    for one, other in zip(whole, again, strict=True):
        assert torch.equal(one.weight, other.weight)
        assert torch.equal(one.bias, other.bias)


@pytest.mark.parametrize("content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"junk" * 50])
def test_a_damaged_state_is_as_none(content: bytes, width: int, tmp_path: Path) -> None:
    arguments = (_configs("cosent"), _features(width), *_labels())
    (tmp_path / "kept.safetensors").write_bytes(content)
    for one, other in zip(train_heads(*arguments), train_heads(*arguments, tmp_path / "kept.safetensors"), strict=True):
        assert torch.equal(one.weight, other.weight)
