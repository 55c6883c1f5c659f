from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor, nn

import cml
from cml import distances, losses, sampling, tasks
from cml.array_types import UInt8
from cml.data.images import Images
from cml.data.prepared import DatasetInfo
from cml.errors import UserError
from cml.items import LabelledItems
from cml.losses.class_loss import ClassLoss
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import LabelSource, Loss, VectorLoss
from cml.training.config import TrainConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Learned, Place

CONFIG = TrainConfig(
    label_distance="classes",
    loss="proxy-anchor",
    sampler="random(batch_size=16)",
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    dimension=8,
    steps=8,
    checkpoint_every=4,
    workers=0,
)
NAMES = ("wren", "gull", "owl")


def pictures(count: int = 48) -> tuple[UInt8, list[str]]:
    """Noise of three colours, labelled with the colour's bird."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, count)
    images = rng.integers(0, 100, (count, 16, 16, 3), dtype=np.uint8)
    images[np.arange(count), :, :, classes] += 120
    return images, [NAMES[number] for number in classes]


def data(labels: Sequence[object] | None = None, label_distance: str = "classes") -> LabelledItems:
    images, birds = pictures()
    distance = distances.registry.make(label_distance)
    return LabelledItems(Images(images, (16, 16)), distance.encode(birds if labels is None else labels), distance)


def run(config: TrainConfig, out: Path | None = None) -> Learned:
    return GradientDescent(config).learn(data(), place=Place(out=out, quiet=True))


class Recorder(Loss):
    """Keeps what it is given; asks for what the kind of loss asks for that it names."""

    kind: ClassVar[type[Loss]] = LabelDistanceLoss
    seen: ClassVar[list[Tensor]] = []
    prepared: ClassVar[list[tuple[Tensor, int, tuple[str, ...]]]] = []

    def target(self, batch: LabelSource) -> Tensor:
        return self.kind().target(batch)

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        assert generator is not None
        Recorder.prepared.append((target, dimension, tuple(names)))

    def forward(self, embeddings: Tensor, target: Tensor) -> Tensor:
        Recorder.seen.append(target)
        return embeddings.square().mean()


@pytest.fixture
def recorder() -> type[Recorder]:
    Recorder.seen.clear()
    Recorder.prepared.clear()
    return Recorder


def registered(monkeypatch: pytest.MonkeyPatch, loss: type[Loss]) -> None:
    monkeypatch.setitem(losses.registry._entries, "test-loss", loss)


@pytest.mark.parametrize("kind", [LabelDistanceLoss, ClassLoss, VectorLoss])
def test_a_loss_is_given_what_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, recorder: type[Recorder], kind: type[Loss]
) -> None:
    monkeypatch.setattr(recorder, "kind", kind)
    registered(monkeypatch, recorder)
    images, birds = pictures()
    labels: Sequence[object] = birds
    label_distance = "classes"
    if kind is VectorLoss:
        labels, label_distance = np.random.default_rng(1).normal(size=(48, 3)).tolist(), "euclidean"
    config = replace(CONFIG, loss="test-loss", label_distance=label_distance, steps=3, workers=1)
    cml.fit(images, labels, config, quiet=True)
    items = [
        sampling.get("random", batch_size=16).batch(np.empty((48, 0), np.int32), seed=0, step=n).items for n in range(3)
    ]
    assert len(recorder.seen) == 3
    for target, chosen in zip(recorder.seen, items, strict=True):
        if kind is ClassLoss:
            assert target.dtype == torch.int64
            assert target.tolist() == [sorted(NAMES).index(birds[item]) for item in chosen]
        elif kind is VectorLoss:
            assert target.dtype == torch.float32
            np.testing.assert_array_equal(target.numpy(), np.array(labels, np.float32)[chosen])
        else:
            assert target.shape == (16, 16)
            assert set(target.unique().tolist()) == {0, 1}
    ((prepared, dimension, names),) = recorder.prepared
    assert len(prepared) == (48 * 47 // 2 if kind is LabelDistanceLoss else 48)  # all pairs of so few items
    assert dimension == 8
    assert names == (() if kind is VectorLoss else tuple(sorted(NAMES)))


@pytest.mark.filterwarnings("ignore::cml.errors.ImplausibleData")  # one class
def test_labels_of_another_kind_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = np.random.default_rng(0).uniform(20, 60, 48).tolist()
    images, birds = pictures()
    with pytest.raises(UserError, match=r"'euclidean' has no classes.*label_distance=classes.*binary\(loss="):
        cml.fit(images, ages, replace(CONFIG, label_distance="euclidean"), quiet=True)
    with pytest.raises(UserError, match=r"should be a class: a text or a whole number\. Got \d"):
        cml.fit(images, ages, CONFIG, quiet=True)
    with pytest.raises(UserError, match=r"'classes' has no label vectors.*label_distance=euclidean"):
        cml.fit(images, birds, replace(CONFIG, loss="regression"), quiet=True)
    with pytest.raises(UserError, match=r"at least 2 training classes. Got only 'wren'"):
        cml.fit(images, ["wren"] * 48, CONFIG, quiet=True)
    config = replace(CONFIG, label_distance="euclidean", loss="log-ratio", sampler="per-class(batch_size=16)")
    with pytest.raises(UserError, match="'euclidean' has no classes"):
        cml.fit(images, ages, config, quiet=True)


def test_proxies_learn_at_their_own_rate(tmp_path: Path) -> None:
    def proxies(rate: float, steps: int) -> Tensor:
        config = replace(CONFIG, proxy_rate=rate, steps=steps, schedule="constant", weight_decay=0.0)
        (proxy,) = run(config).loss.proxies()
        return proxy.detach()

    start = proxies(1e-9, 1)  # as good as not moved
    slow, fast = ((proxies(rate, 1) - start).abs().max().item() for rate in (1.0, 100.0))
    assert slow == pytest.approx(CONFIG.learning_rate, rel=1e-3)  # AdamW's first step is the rate
    assert fast == pytest.approx(100 * CONFIG.learning_rate, rel=1e-3)


@pytest.mark.slow
def test_classes_are_learnt_and_proxies_saved(tmp_path: Path) -> None:
    trained = run(replace(CONFIG, steps=30))
    records = [record["loss"] for record in trained.metrics]
    assert records[-1] < records[0] / 4
    images, birds = pictures()
    cml.fit(images, birds, CONFIG, out=tmp_path / "run", quiet=True)
    saved = load_file(tmp_path / "run" / "loss.safetensors")
    assert {name: tuple(value.shape) for name, value in saved.items()} == {"inner.proxies": (3, 8)}
    cml.fit(images, birds, replace(CONFIG, loss="multi-similarity"), out=tmp_path / "pairs", quiet=True)
    assert not (tmp_path / "pairs" / "loss.safetensors").exists()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["proxy-anchor", "soft-triple(centers=2)", "proxy-gml(per_class=2, share=0.9)"])
def test_resumed_with_proxies_is_bit_for_bit_the_uninterrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    images, birds = pictures()
    config = replace(CONFIG, loss=loss, sampler="per-class(batch_size=16, per_class=3)")
    cml.fit(images, birds, config, out=tmp_path / "whole", quiet=True)
    calls = []

    def stop(first: int, values: object) -> None:
        calls.append(first)
        if len(calls) > 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("cml.training.metrics_log._check_finite", stop)
        with pytest.raises(KeyboardInterrupt):
            cml.fit(images, birds, config, out=tmp_path / "cut", quiet=True)
    cml.fit(images, birds, config, out=tmp_path / "cut", resume=True, quiet=True)
    for name in ("model.safetensors", "loss.safetensors", "metrics.jsonl"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes()


class HiddenProxies(ClassLoss):
    """Keeps its proxies where no module looks."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = [torch.ones(8, requires_grad=True)]

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        return (embeddings * self.hidden[0]).square().mean()


class LateProxies(HiddenProxies):
    """Makes a parameter at the first batch, when the optimiser is there already."""

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Parameter(torch.ones(8))
        return (embeddings * self.late).square().mean()


class StrangeProxies(HiddenProxies):
    """Names a proxy that is none of its parameters."""

    def proxies(self) -> list[nn.Parameter]:
        return [nn.Parameter(torch.ones(8))]


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (HiddenProxies, r"HiddenProxies has a tensor of shape \(8,\) that no optimiser holds"),
        (LateProxies, "LateProxies has a parameter 'late' that no optimiser holds"),
        (StrangeProxies, "StrangeProxies names a proxy that is not one of its parameters"),
    ],
)
def test_a_loss_parameter_that_no_optimiser_holds_is_an_error(
    monkeypatch: pytest.MonkeyPatch, loss: type[Loss], message: str
) -> None:
    registered(monkeypatch, loss)
    for frozen in (False, True):
        with pytest.raises(UserError, match=message):
            run(replace(CONFIG, loss="test-loss", freeze_backbone=frozen))


class Blind(ClassLoss):
    """A loss that hides what is no number, as a mean over the terms above 0 does."""

    calls = 0

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        Blind.calls += 1
        poison = torch.nan if Blind.calls == 3 else 0.0
        return embeddings.nan_to_num(0).square().mean() + (embeddings * poison).sum().nan_to_num(0)


def test_embeddings_that_are_no_numbers_stop_the_run_and_name_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, Blind)
    Blind.calls = 0
    # the third step's gradient is NaN, so the fourth step embeds with NaN weights while the loss stays finite
    with pytest.raises(FloatingPointError, match=r"The embeddings hold NaN or infinity at step 4: lower"):
        run(replace(CONFIG, loss="test-loss"))


def test_mirrored_images_keep_their_class() -> None:
    plain = data()
    twins = LabelledItems(plain.inputs, plain.labels, plain.distance, mirrored_labels=plain.labels)
    GradientDescent(replace(CONFIG, flip="image", steps=2)).learn(twins, place=Place(quiet=True))


def test_every_variant_of_the_task_is_a_recipe_that_can_be_made() -> None:
    task = tasks.get("classes")
    assert task.mirror is not None
    recipe = DatasetInfo("birds", "classes", "class", "", "", "", "")
    assert task.mirror("wren", recipe) == "wren"
    assert (task.describe("wren", recipe), task.describe(7.0, recipe)) == ("wren", "7")
    for changes in task.variants.values():
        config = replace(task.recipe, **changes)
        assert losses.registry.make(config.loss).labels == "classes"
        sampling.registry.make(config.sampler)


def test_the_recipe_is_proxy_anchors() -> None:
    recipe = tasks.get("classes").recipe
    loss = losses.registry.make(recipe.loss)
    assert (loss.alpha, loss.delta) == (32, 0.1)
    assert sampling.registry.make(recipe.sampler).batch_size == 180
    assert (recipe.dimension, recipe.optimizer, recipe.proxy_rate) == (512, "adamw", 100)


class_sizes = st.lists(st.integers(1, 9), min_size=2, max_size=8)


@settings(deadline=None, max_examples=40)
@given(class_sizes, st.integers(2, 4), st.integers(0, 99), st.data())
def test_per_class_batches(sizes: list[int], per_class: int, seed: int, draw: st.DataObject) -> None:
    numbers = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    if len(numbers) < per_class:
        return
    batch_size = draw.draw(st.integers(per_class, len(numbers)))
    sampler = sampling.get("per-class", batch_size=batch_size, per_class=per_class)
    given_numbers = numbers.astype(np.int64)
    groups = sum(-(-size // per_class) for size in sizes)
    steps = -(-groups // (batch_size // per_class))
    for epoch in range(2):
        taken: Counter[int] = Counter()
        for step in range(steps):
            batch = sampler.batch(given_numbers, seed=seed, step=epoch * steps + step)
            again = sampler.batch(given_numbers, seed=seed, step=epoch * steps + step)
            np.testing.assert_array_equal(batch.items, again.items)
            assert batch.anchors == batch_size == len(set(batch.items.tolist()))
            taken.update(batch.items.tolist())
        assert set(taken) == set(range(len(numbers)))


def test_per_class_batches_hold_so_many_of_a_class() -> None:
    numbers = np.repeat(np.arange(10), 12)
    sampler = sampling.get("per-class", batch_size=20, per_class=4)
    for step in range(6):
        counts = Counter(numbers[sampler.batch(numbers, seed=1, step=step).items].tolist())
        assert list(counts.values()) == [4] * 5
    orders = [tuple(sampler.batch(numbers, seed=1, step=step).items) for step in (0, 6)]
    assert orders[0] != orders[1]
    with pytest.raises(UserError, match=r"'per_class' must be in 2\.\.20. Got 1"):
        sampling.get("per-class", batch_size=20, per_class=1)
    with pytest.raises(UserError, match="takes 150 different items, but there are 120"):
        sampling.get("per-class").batch(numbers, seed=0, step=0)
